package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/loopback"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sshgate"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	gatewayAddress = "127.0.0.1:2200"
	gatewayKey     = "gateway.key" // in the state folder
)

type gatewayOptions struct{ listen, keys string }

// NewCmdGateway makes the command.
func NewCmdGateway(f *cmdutil.Factory) *cobra.Command {
	o := &gatewayOptions{}
	cmd := &cobra.Command{
		Use: "gateway", Short: "Serve all sandboxes to SSH clients at one port",
		Long: `Serves sandboxes to SSH clients until it is stopped: terminals, commands, scp,
sftp and forwarded ports. The user name, or the first word of the command, names
the sandbox. Without, a terminal shows a list to choose from.

It listens on the loopback, and at another address only if --listen names one.
The keys of --authorized-keys, or of ~/.ssh/*.pub, open it; they are read for
each connection. There are no passwords. A client can use each sandbox with
everything that it reaches: its mounts, its network, and with the runtime host
this machine with your rights. In the list, n creates a sandbox as 'up NAME' does
and d removes one as 'down NAME' does.`,
		Example: `  sandbox-agent gateway
  sandbox-agent gateway --listen 192.0.2.7:2200 --authorized-keys team.keys
  ssh -p 2200 127.0.0.1                 # the list
  ssh -p 2200 dev@127.0.0.1             # the terminal of dev
  ssh -p 2200 127.0.0.1 dev uname -a
  scp -P 2200 file dev@127.0.0.1:`,
		Args: cmdutil.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&o.listen, "listen", gatewayAddress, "address to listen at; port 0 takes a free one")
	cmd.Flags().StringVar(&o.keys, "authorized-keys", "", "file with public keys (default: ~/.ssh/*.pub)")
	return cmd
}

func (o *gatewayOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil || net.ParseIP(host) == nil {
		return fault.New(workorder.ExitUsage, fmt.Errorf("--listen %q is no address with a port", o.listen), "for example: --listen "+
			gatewayAddress)
	}
	keys := func() ([]ssh.PublicKey, error) { return gatewayKeys(f, o.keys) }
	if _, err := keys(); err != nil {
		return err
	}
	m, err := f.Manager(false)
	if err != nil {
		return err
	}
	defer m.Close()
	s, key, err := gateway(f, m, keys, slog.LevelInfo)
	if err != nil {
		return err
	}
	l, err := loopback.Listen(ctx, o.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.Stderr, "the gateway is at %s, with the key %s\n", l.Addr(), ssh.FingerprintSHA256(key.PublicKey()))
	return s.Serve(ctx, l)
}

// gatewayKeys are the keys that open the gateway: of the file, or else the user's own.
func gatewayKeys(f *cmdutil.Factory, file string) (keys []ssh.PublicKey, err error) {
	files := []string{file}
	if file == "" {
		home := f.Getenv("HOME")
		if !filepath.IsAbs(home) { // the current directory may be another user's
			return nil, fault.New(workorder.ExitUsage, errors.New("no authorized keys found: HOME is not an absolute path"),
				"name a file with --authorized-keys")
		}
		if files, err = filepath.Glob(filepath.Join(home, ".ssh", "*.pub")); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, f := range files {
		some, err := sshgate.ReadKeys(f)
		keys, errs = append(keys, some...), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil && (file != "" || len(keys) == 0) { // one of the user's own may be of another program
		return nil, fault.New(workorder.ExitUsage, err, "a line has one public key, without options")
	}
	if len(keys) == 0 {
		return nil, fault.New(workorder.ExitUsage, errors.New("there is no public key that could open the gateway"),
			"`ssh-keygen -t ed25519` makes one, or name a file with --authorized-keys")
	}
	return keys, nil
}

// gateway makes the server and its key.
func gateway(
	f *cmdutil.Factory, m *sandbox.Manager, keys func() ([]ssh.PublicKey, error), level slog.Level,
) (*sshgate.Server, ssh.Signer, error) {
	st, err := f.Store()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(st.Dir(), 0o700); err != nil {
		return nil, nil, fmt.Errorf("create the state directory: %w", err)
	}
	key, err := sshgate.HostKey(filepath.Join(st.Dir(), gatewayKey))
	if err != nil {
		return nil, nil, err
	}
	log := slog.New(slog.NewTextHandler(f.Stderr, &slog.HandlerOptions{Level: level}))
	if f.Debug {
		log = f.Log()
	}
	return sshgate.New(sshgate.Options{HostKey: key, Keys: keys, Sandboxes: &gatewaySandboxes{f, m}, Log: log}), key, nil
}

// gatewaySandboxes are those that the gateway serves.
type gatewaySandboxes struct {
	f *cmdutil.Factory
	m *sandbox.Manager
}

func (g *gatewaySandboxes) List(ctx context.Context) ([]sshgate.Row, error) {
	all, err := g.m.List(ctx)
	rows := make([]sshgate.Row, 0, len(all))
	for _, i := range all {
		if i.Spec.Lifetime == sandbox.LifetimeNamed {
			rows = append(rows, sshgate.Row{Name: i.Name, State: string(i.State), What: string(i.Runtime) + " " + i.Image, Created: i.Created})
		}
	}
	return rows, err
}

func (g *gatewaySandboxes) Open(ctx context.Context, name string) (sshgate.Sandbox, error) {
	if !sandbox.ValidName(name) {
		return nil, sshgate.ErrNotFound
	}
	sb, err := g.m.Get(ctx, name)
	if err != nil {
		if r, rerr := g.f.Registry(); rerr == nil {
			if _, known := r.Load(name); known == nil && !errors.Is(err, sandbox.ErrNotFound) {
				return nil, err // its engine does not answer
			}
		}
		// Another kind that does not answer, as an engine that this user has no right to, has none: the list tells of it.
		return nil, fmt.Errorf("%w: %w", sshgate.ErrNotFound, err)
	}
	g.f.Endpoints().Ensure(ctx, name)
	return &gatewaySandbox{g.f, sb}, nil
}

// Create implements sshgate.Sandboxes.
func (g *gatewaySandboxes) Create(ctx context.Context, name string) error {
	s := sandbox.Spec{Name: name}
	if err := g.f.Sandboxes().ChooseRuntime(ctx, g.m, &s, ""); err != nil {
		return err
	}
	sb, err := g.m.Create(ctx, s)
	if err != nil {
		return err
	}
	return sb.Close()
}

// Remove implements sshgate.Sandboxes.
func (g *gatewaySandboxes) Remove(ctx context.Context, name string) error {
	sb, err := g.m.Get(ctx, name)
	if err != nil {
		return err
	}
	if err := app.RemoveSandbox(ctx, sb, false); err != nil {
		return err
	}
	g.f.Sandboxes().WarnOfRepositories(ctx, sb)
	return nil
}

type gatewaySandbox struct {
	f  *cmdutil.Factory
	sb *sandbox.Sandbox
}

func (g *gatewaySandbox) Run(ctx context.Context, c sshgate.Command) (int, error) {
	what := sandbox.Command{Argv: []string{"sh"}, Env: c.Env, Stdin: c.Stdin}
	if c.Terminal != nil {
		what.Terminal = &sandbox.Size{Rows: c.Terminal.Rows, Cols: c.Terminal.Cols}
	}
	switch {
	case c.Line != "":
		what.Argv = []string{"sh", "-c", c.Line}
	case c.Terminal != nil:
		var err error
		if what.Argv, err = app.VisitorTerminal(ctx, g.sb); err != nil {
			return 0, err
		}
	}
	if c.Terminal != nil {
		defer g.f.Sandboxes().MarkAttached(g.sb.Name())()
	}
	started := time.Now()
	p, err := g.sb.Start(ctx, what)
	if err != nil {
		return 0, err
	}
	if said := app.RenewedNote(g.sb); said != "" {
		fmt.Fprint(c.Stderr, said+"\r\n")
	}
	over := make(chan struct{})
	defer close(over)
	go hand(ctx, p, c, over)
	r, err := p.Wait(ctx, c.Stdout, c.Stderr)
	if err != nil { // the client is gone, or the sandbox has stopped
		ctx, cancel := app.Outlast(ctx)
		defer cancel()
		_, _ = g.sb.Branch().SaveIfRunning(ctx, app.RanNow(what.Argv, started, cmdutil.ExitLost))
		return 0, err
	}
	g.f.Sandboxes().Save(ctx, g.sb, app.RanNow(what.Argv, started, r.ExitCode))
	if r.Reason != "" {
		fmt.Fprintf(c.Stderr, "error: %s\r\n", r.Reason)
	}
	return r.ExitCode, nil
}

// hand hands a client's sizes and signals on to its command.
func hand(ctx context.Context, p *sandbox.Process, c sshgate.Command, over <-chan struct{}) {
	for {
		select {
		case s := <-c.Resized:
			_ = p.Resize(ctx, sandbox.Size{Rows: s.Rows, Cols: s.Cols}) // a command that has ended has none
		case s := <-c.Signals:
			_ = p.Signal(ctx, s)
		case <-over:
			return
		}
	}
}

func (g *gatewaySandbox) Reach(ctx context.Context, port int) (net.Conn, error) {
	return g.sb.Endpoints().DialPort(ctx, port)
}

func (g *gatewaySandbox) Files(ctx context.Context) (io.ReadWriteCloser, error) {
	return g.sb.Files().SFTP(ctx)
}

func (g *gatewaySandbox) Close(context.Context) error { return g.sb.Close() }
