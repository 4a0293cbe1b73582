package sandboxcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// hostSuffix follows a sandbox's name as an SSH host.
const hostSuffix = ".sandbox"

// clientGrace is what an SSH client has to leave the terminal as it was.
const clientGrace = 2 * time.Second

type sshOptions struct{ stdio bool }

// NewCmdSSH makes the command.
func NewCmdSSH(f *cmdutil.Factory) *cobra.Command {
	o := &sshOptions{}
	cmd := &cobra.Command{
		Use: "ssh SANDBOX [ARGUMENTS...] [-- COMMAND...]", Short: "Open a sandbox with OpenSSH's client",
		Long: `Runs ssh of this machine with a sandbox and ends with its exit code. Arguments
after the name are for ssh: its options, and a command. No gateway, port or key
is needed: ssh talks to this program over pipes. On a terminal and without a
command it opens the agent that runs in the sandbox, as 'attach' does, or else
the sandbox's own terminal, as 'shell' does.

--stdio is the other side: it serves SSH on standard input and output, for
ProxyCommand in ssh_config. 'ssh-config' prints the lines with which ssh, scp,
sftp, rsync and editors reach a sandbox by name.`,
		Example:           "  sandbox-agent ssh dev\n  sandbox-agent ssh dev -- uname -a\n  sandbox-agent ssh dev -N -L 8000:localhost:8000",
		Args:              cmdutil.SomeSandboxes,
		ValidArgsFunction: f.CompleteSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.stdio {
				return o.serve(cmd.Context(), f, args)
			}
			return o.do(cmd.Context(), f, args[0], args[1:])
		},
	}
	cmd.Flags().BoolVar(&o.stdio, "stdio", false, "serve SSH on standard input and output")
	cmd.Flags().SetInterspersed(false) // what follows the sandbox is ssh's
	return cmd
}

// serve serves one client that has started this program, and so needs no key.
func (o *sshOptions) serve(ctx context.Context, f *cmdutil.Factory, args []string) error {
	if err := oneArg(args); err != nil {
		return err
	}
	m, err := f.Manager(false)
	if err != nil {
		return err
	}
	defer m.Close()
	s, _, err := sshServer(f, m, nil, slog.LevelError)
	if err != nil {
		return err
	}
	err = s.ServeKnown(ctx, newPipes(f.Stdin, f.Stdout), args[0])
	if ctx.Err() != nil {
		return cmdutil.Interrupted(ctx)
	}
	return err
}

func oneArg(args []string) error {
	if len(args) == 1 {
		return nil
	}
	return app.Usagef("--stdio takes one sandbox's name, got %d", len(args))
}

// pipes are a connection.
type pipes struct {
	*io.PipeReader
	out io.Writer
}

// newPipes reads in to its end or the program's: a read of a pipe that is silent ends by no Close.
func newPipes(in io.Reader, out io.Writer) pipes {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	return pipes{r, out}
}

func (s pipes) Write(p []byte) (int, error) { return s.out.Write(p) }

func (s pipes) Close() error {
	err := s.PipeReader.Close()
	if c, ok := s.out.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

func (pipes) LocalAddr() net.Addr              { return pipesAddr{} }
func (pipes) RemoteAddr() net.Addr             { return pipesAddr{} }
func (pipes) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (pipes) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (pipes) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

type pipesAddr struct{}

func (pipesAddr) Network() string { return "stdio" }
func (pipesAddr) String() string  { return "stdio" }

func (o *sshOptions) do(ctx context.Context, f *cmdutil.Factory, name string, rest []string) error {
	options, err := f.Sandboxes().SSHOptions(ctx, name)
	if err != nil {
		return err
	}
	argv := []string{"ssh"}
	for _, o := range options {
		argv = append(argv, "-o", o.Key+"="+o.Value)
	}
	argv = append(argv, sshArguments(name+hostSuffix, rest)...)
	if in, ok := f.Stdin.(*os.File); ok {
		if before, err := term.GetState(int(in.Fd())); err == nil {
			defer func() { _ = term.Restore(int(in.Fd()), before) }() // of a client that was killed
		}
	}
	p, err := proc.Start(ctx, proc.Spec{
		Argv: argv, Env: os.Environ(), Stdin: f.Stdin, Stdout: f.Stdout, Stderr: f.CommandStderr(), Grace: clientGrace,
	})
	if proc.Missing(err) == argv[0] {
		return exiterr.New(workorder.ExitGeneral, err, "install OpenSSH's client (`sudo apt install openssh-client`); `sandbox-agent shell "+name+
			"` needs none")
	}
	if err != nil {
		return err
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	defer signal.Stop(changed)
	for {
		select {
		case <-changed: // the terminal is this program's, not the client's
			p.Signal(syscall.SIGWINCH)
			continue
		case <-p.Done():
		}
		break
	}
	if code := proc.ExitCode(p.Wait()); code != 0 {
		return cmdutil.Exit(code)
	}
	return nil
}

// sshArguments puts the host between ssh's options and the command.
func sshArguments(host string, rest []string) []string {
	for i, word := range rest {
		if word == "--" {
			return append(append(append([]string{}, rest[:i]...), host, "--"), rest[i+1:]...)
		}
	}
	return append([]string{host}, rest...) // ssh takes options behind the host, too
}

// NewCmdSSHConfig makes the command.
func NewCmdSSHConfig(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use: "ssh-config SANDBOX", Short: "Print ssh_config lines for a sandbox",
		Long: `Prints lines for ~/.ssh/config with which ssh, scp, sftp, rsync and editors such
as VS Code (Remote - SSH) reach a sandbox of this machine as the host
NAME.sandbox. No gateway, port or key is needed. The lines also work for a later
sandbox of the same name.`,
		Example: `  sandbox-agent ssh-config dev >>~/.ssh/config
  scp file dev.sandbox:
  ssh -N -L 8000:localhost:8000 dev.sandbox`,
		Args: cmdutil.OneSandbox, ValidArgsFunction: f.CompleteSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := f.Sandboxes().SSHOptions(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(f.Stdout, "Host %s%s\n", args[0], hostSuffix)
			for _, o := range options {
				fmt.Fprintf(f.Stdout, "  %s %s\n", o.Key, o.Value)
			}
			return nil
		},
	}
}

// NewCmdSSHCommand makes the command.
func NewCmdSSHCommand(f *cmdutil.Factory) *cobra.Command {
	gateway := ""
	cmd := &cobra.Command{
		Use: "ssh-cmd SANDBOX", Short: "Print an SSH command for another machine",
		Long: `Prints the command with which another machine opens a sandbox's terminal by the
gateway at --gateway. For a gateway on the loopback it goes through this
machine's SSH server.`,
		Example: "  sandbox-agent ssh-cmd dev\n  sandbox-agent ssh-cmd dev --gateway 192.0.2.7:2200",
		Args:    cmdutil.OneSandbox, ValidArgsFunction: f.CompleteSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			host, port, err := net.SplitHostPort(gateway)
			if err != nil || host == "" {
				return exiterr.New(workorder.ExitUsage, fmt.Errorf("--gateway %q is no address with a port", gateway), "for example: --gateway "+
					gatewayAddress)
			}
			_, done, err := f.Sandboxes().Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			done()
			words := []string{"ssh"}
			if atLoopback(host) {
				self, err := os.Hostname()
				if err != nil {
					return fmt.Errorf("find this machine's name: %w", err)
				}
				words = append(words, "-J", cmp.Or(f.Getenv("USER"), "root")+"@"+self)
			}
			fmt.Fprintln(f.Stdout, app.CommandLine(append(words, "-p", port, args[0]+"@"+host)))
			return nil
		},
	}
	cmd.Flags().StringVar(&gateway, "gateway", gatewayAddress, "address at which 'sandbox-agent gateway' listens")
	return cmd
}

// atLoopback reports whether only this machine reaches the host.
func atLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
