package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/front/sshserver"
	"github.com/sandbox-agent/sandbox-agent/internal/host/loopback"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const gatewayAddress = "127.0.0.1:2200"

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
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("--listen %q is no address with a port", o.listen), "for example: --listen "+
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
	s, key, err := sshServer(f, m, keys, slog.LevelInfo)
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
			return nil, exiterr.New(workorder.ExitUsage, errors.New("no authorized keys found: HOME is not an absolute path"),
				"name a file with --authorized-keys")
		}
		if files, err = filepath.Glob(filepath.Join(home, ".ssh", "*.pub")); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, f := range files {
		some, err := sshserver.ReadKeys(f)
		keys, errs = append(keys, some...), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil && (file != "" || len(keys) == 0) { // one of the user's own may be of another program
		return nil, exiterr.New(workorder.ExitUsage, err, "a line has one public key, without options")
	}
	if len(keys) == 0 {
		return nil, exiterr.New(workorder.ExitUsage, errors.New("there is no public key that could open the gateway"),
			"`ssh-keygen -t ed25519` makes one, or name a file with --authorized-keys")
	}
	return keys, nil
}

// sshServer makes the SSH server of a manager's sandboxes with the key of this state directory.
func sshServer(
	f *cmdutil.Factory, m *sandbox.Manager, keys func() ([]ssh.PublicKey, error), level slog.Level,
) (*sshserver.Server, ssh.Signer, error) {
	key, err := f.Sandboxes().HostKey()
	if err != nil {
		return nil, nil, err
	}
	log := slog.New(f.LogHandler(&slog.HandlerOptions{Level: level}))
	if f.Debug {
		log = f.Log()
	}
	return sshserver.New(sshserver.Options{HostKey: key, Keys: keys, Sandboxes: sshserver.Managed(&f.Env, m), Log: log}), key, nil
}
