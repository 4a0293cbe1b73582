//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// gate is a gateway, and what OpenSSH's client needs for it.
type gate struct {
	u      *user
	p      *started
	dir    string // the client's
	port   string
	config string // of ssh
}

// gate starts one with a key of its own, whose ssh_config has the given sandboxes as hosts by pipes, too.
func (u *user) gate(names ...string) *gate {
	u.t.Helper()
	g := &gate{u: u, dir: u.t.TempDir()}
	g.config = filepath.Join(g.dir, "config")
	g.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(g.dir, "key"))
	keys := filepath.Join(u.dir, "keys") // a plain user reads it
	b, err := os.ReadFile(filepath.Join(g.dir, "key.pub"))
	if err == nil {
		err = os.WriteFile(keys, b, 0o644)
	}
	if err != nil {
		u.t.Fatal(err)
	}
	g.p = u.start("", "gateway", "--listen", "127.0.0.1:0", "--authorized-keys", keys)
	g.p.waitFor(" with the key ")
	g.port = regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(g.p.errOut.String())[1]
	var conf strings.Builder
	fmt.Fprintf(&conf, "Host gate\n  HostName 127.0.0.1\n  Port %s\n  IdentityFile %s\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n  SetEnv LANG=C.UTF-8\n", g.port, filepath.Join(g.dir, "key"))
	for _, n := range names {
		c := u.run("", "ssh-config", n)
		if c.code != 0 {
			u.t.Fatalf("ssh-config: exit code %d", c.code)
		}
		by := ""
		if u.by != nil {
			by = strings.Join(u.by, " ") + " "
		}
		conf.WriteString(strings.Replace(c.stdout, "ProxyCommand ", "ProxyCommand "+by, 1))
	}
	if err := os.WriteFile(g.config, []byte(conf.String()), 0o600); err != nil {
		u.t.Fatal(err)
	}
	return g
}

// run runs a program of OpenSSH's with the gateway's configuration.
func (g *gate) run(stdin string, argv ...string) call {
	g.u.t.Helper()
	ctx, cancel := context.WithTimeout(g.u.t.Context(), cliLimit)
	defer cancel()
	var out, errOut syncBuffer
	argv = slices.Concat(argv[:1], []string{"-F", g.config}, argv[1:])
	err := proc.Run(ctx, proc.Spec{Argv: argv, Dir: g.dir, Env: append(os.Environ(), "HOME="+g.dir), Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut})
	if ctx.Err() != nil {
		g.u.t.Fatalf("%q does not end: %s", argv, errOut.String())
	}
	return call{proc.ExitCode(err), out.String(), errOut.String()}
}

func (g *gate) must(argv ...string) {
	g.u.t.Helper()
	if out, err := proc.Output(g.u.t.Context(), proc.Spec{Argv: argv, Dir: g.dir, Env: os.Environ()}); err != nil {
		g.u.t.Fatalf("%q: %v, %s", argv, err, out)
	}
}

// TestGateway: OpenSSH's programs use sandboxes by the gateway and by pipes.
func TestGateway(t *testing.T) {
	t.Parallel()
	ofEachKind(t, func(t *testing.T, u *user) {
		t.Helper()
		name := u.sandbox("ssh")
		g := u.gate(name)
		for _, c := range []struct {
			argv  []string
			stdin string
			code  int
			out   string
		}{
			{[]string{"ssh", name + "@gate", "exit 9"}, "", 9, ""},
			{[]string{"ssh", "x@gate", name, "exit 8"}, "", 8, ""},
			{[]string{"ssh", "x@gate", name, "cat; echo $LANG"}, "in\n", 0, "in\nC.UTF-8\n"},
			{[]string{"ssh", "x@gate", name}, "echo $((6 * 7)); exit 4", 4, "42\n"},
			{[]string{"ssh", name + ".sandbox", "tty || kill -TERM $$"}, "", 143, "not a tty\n"},
			{[]string{"ssh", "-tt", name + ".sandbox", "tty >/dev/null && stty size"}, "", 0, "24 80\r\n"},
		} {
			if got := g.run(c.stdin, c.argv...); got.code != c.code || c.out != "" && got.stdout != c.out {
				t.Errorf("%q: exit code %d, %q, %q", c.argv, got.code, got.stdout, got.stderr)
			}
		}
		marker := filepath.Join(g.dir, "pwn")
		if got := g.run("", "ssh", "x@gate", "'s; touch "+marker+"'"); got.code != workorder.ExitNotFound || got.stdout != "" || !strings.Contains(got.stderr, name) {
			t.Errorf("no sandbox's name: exit code %d, %q", got.code, got.stdout)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Error("a name is a command")
		}
		if got := g.run("", "ssh", "x@gate"); got.code != 0 || !strings.Contains(got.stdout, name) {
			t.Errorf("the list: exit code %d, %q", got.code, got.stdout)
		}
		g.files(name)
		g.forward(name)
		// A stop ends all that runs, and the gateway finds the sandbox again.
		if c := u.run("", "stop", name); c.code != 0 {
			t.Errorf("stop: exit code %d", c.code)
		}
		if c := g.run("", "ssh", name+"@gate", "exit 6"); c.code != 6 {
			t.Errorf("after a stop: exit code %d, %q", c.code, c.stderr)
		}
	})
}

// files copies with scp and sftp.
func (g *gate) files(name string) {
	t := g.u.t
	t.Helper()
	content := strings.Repeat("line of a file\n", 200_000)
	if err := os.WriteFile(filepath.Join(g.dir, "big"), []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	old := time.Unix(1e9, 0)
	if err := os.Chtimes(filepath.Join(g.dir, "big"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(g.dir, "tree/a b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(g.dir, "tree/a b", fmt.Sprint(i)), []byte(fmt.Sprint(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, at := range []string{name + "@gate", name + ".sandbox"} {
		back := fmt.Sprintf("back%d", i)
		for _, argv := range [][]string{
			{"scp", "-q", "-p", "big", at + ":/tmp/big"}, {"scp", "-q", "-r", "tree", at + ":/tmp/tree" + back}, {"scp", "-q", "-p", at + ":/tmp/big", back}, {"scp", "-q", "-r", at + ":/tmp/tree" + back, "tree" + back},
		} {
			if c := g.run("", argv...); c.code != 0 {
				t.Fatalf("%q: exit code %d, %s", argv, c.code, c.stderr)
			}
		}
		b, err := os.ReadFile(filepath.Join(g.dir, back))
		st, serr := os.Stat(filepath.Join(g.dir, back))
		if err != nil || serr != nil || string(b) != content || st.Mode().Perm() != 0o640 || !st.ModTime().Equal(old) {
			t.Errorf("%s: another file: %v, %v, %d bytes, %v", at, err, serr, len(b), st)
		}
		if b, err := os.ReadFile(filepath.Join(g.dir, "tree"+back, "a b/3")); err != nil || string(b) != "3" {
			t.Errorf("%s: %q, %v", at, b, err)
		}
		batch := "cd /tmp\nrename big there\nln -s there link\nget link " + back + "\nput " + back + " again\nrm link\nrm there\nmkdir d" + back + "\nls\n-rm none\n"
		if c := g.run(batch, "sftp", "-q", "-b", "-", at); c.code != 0 || !strings.Contains(c.stdout, "again") {
			t.Errorf("%s: sftp: exit code %d, %q, %s", at, c.code, c.stdout, c.stderr)
		}
	}
	// The rights are those of the sandbox's user, on both ways alike.
	if c := g.run("", "ssh", name+"@gate", "test -O /tmp/again"); c.code != 0 {
		t.Errorf("another's file: exit code %d", c.code)
	}
	if c := g.run("get /proc/1/environ none\n", "sftp", "-q", "-b", "-", name+"@gate"); c.code == 0 && g.u.kind == rootsJail {
		t.Error("a file that the sandbox's user has no right to")
	}
	if c := g.run("ls\n", "sftp", "-q", "-b", "-", "x@gate"); c.code == 0 {
		t.Error("files of no sandbox")
	}
}

// forward reaches a port of the sandbox, and nothing else.
func (g *gate) forward(name string) {
	t := g.u.t
	t.Helper()
	inside, here := freePort(t, "127.0.0.1"), freePort(t, "127.0.0.1")
	socks := freePort(t, "127.0.0.1")
	if c := g.u.run("", "exec", name, "--background", "--", "perl", "-e", hello, inside, "127.0.0.1"); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	// As VS Code does it: a shell whose script comes by its input, and a proxy for whatever port the script tells of.
	p, err := proc.Start(t.Context(), proc.Spec{
		Argv: []string{"ssh", "-F", g.config, "-T", "-D", "127.0.0.1:" + socks, "-L", "127.0.0.1:" + here + ":localhost:" + inside, name + ".sandbox", "sh"},
		Env:  append(os.Environ(), "HOME="+g.dir), Stdin: strings.NewReader("sleep 60\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { p.Signal(syscall.SIGTERM); _ = p.Wait() }()
	for until := time.Now().Add(30 * time.Second); g.u.says("127.0.0.1:"+here) != "hello"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the port does not answer")
		}
	}
	d, err := proxy.SOCKS5("tcp", "127.0.0.1:"+socks, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.Dial("tcp", net.JoinHostPort("127.0.0.1", inside))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if conn, err := d.Dial("tcp", net.JoinHostPort(hostAddress(t), g.port)); err == nil {
		_ = conn.Close()
		t.Error("another machine by the sandbox's way")
	}
	if c := g.run("", "ssh", "-o", "ExitOnForwardFailure=yes", "-R", "0:localhost:"+g.port, name+"@gate", "true"); c.code != 255 {
		t.Errorf("a port of this machine: exit code %d", c.code)
	}
}

// screen is a terminal of this machine: a window of tmux.
type screen struct {
	t      *testing.T
	socket string
	env    []string
}

// screen runs a command in a terminal.
func (u *user) screen(argv ...string) *screen {
	u.t.Helper()
	s := &screen{u.t, filepath.Join(u.t.TempDir(), "tmux"), append(slices.Clone(u.env), "TERM=xterm-256color", "SHELL=/bin/sh")}
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", text.Shell(argv...)+"; echo ended-$?; sleep 600")
	u.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(u.t.Context()), 10*time.Second)
		defer cancel()
		_ = proc.Run(ctx, proc.Spec{Argv: []string{"tmux", "-S", s.socket, "kill-server"}, Env: s.env})
	})
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := proc.Output(s.t.Context(), proc.Spec{Argv: append([]string{"tmux", "-S", s.socket}, args...), Env: s.env})
	if err != nil {
		s.t.Fatalf("%q: %v", args, err)
	}
	return string(out)
}

func (s *screen) press(keys ...string) { s.tmux(append([]string{"send-keys"}, keys...)...) }

// shows waits until the screen has a text.
func (s *screen) shows(want string) {
	s.t.Helper()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		now := s.tmux("capture-pane", "-p")
		if strings.Contains(now, want) {
			return
		}
		if time.Now().After(until) {
			s.t.Fatalf("no %q on the screen:\n%s", want, now)
		}
	}
}

// tmuxShows is in the last line of a sandbox's own terminal.
const tmuxShows = "[main] "

// TestGatewayPicker: a terminal without a name has a list to choose from.
func TestGatewayPicker(t *testing.T) {
	t.Parallel()
	u := rootsJail.user(t)
	first, second := u.sandbox("first"), u.sandbox("second")
	g := u.gate()
	s := u.screen("ssh", "-F", g.config, "x@gate")
	s.shows("> ")
	s.press("/", "second-jail")
	s.shows("> " + second)
	s.press("BSpace", "Escape")
	s.shows(first)
	s.press("/", u.kind.spec()[0]+"-"+fmt.Sprint(os.Getpid()))
	s.shows("> " + first)
	s.press("Down")
	s.shows("> " + second)
	s.press("Enter")
	s.shows(tmuxShows) // which takes no key that was pressed before
	s.press("echo is-$((40 + 2)); cat /proc/sys/kernel/hostname; pwd", "Enter")
	s.shows("is-42")
	s.tmux("resize-window", "-x", "70", "-y", "20")
	s.press("until test \"$(stty size)\" = '19 70'; do sleep 0.1; done; echo si''zed", "Enter") // the sandbox's tmux has a line
	s.shows("sized")
	s.press("touch /workspace/here; exit", "Enter")
	s.shows("ended-0")
	if c := u.run("", "exec", second, "--", "test", "-e", "/workspace/here"); c.code != 0 {
		t.Error("it was another sandbox")
	}
	s = u.screen("ssh", "-F", g.config, "x@gate")
	s.shows("> ")
	s.press("q")
	s.shows("ended-0")
}

// TestTerminalStays: what runs in a sandbox's own terminal outlives who looks at it, and the gateway.
func TestTerminalStays(t *testing.T) {
	t.Parallel()
	u := rootsJail.user(t)
	name := u.sandbox("stays")
	g := u.gate()
	s := u.screen("ssh", "-F", g.config, name+"@gate")
	s.shows(tmuxShows)
	s.press("n=1; while :; do echo round-$n; n=$((n + 1)); sleep 0.1; done", "Enter")
	s.shows("round-3")
	g.p.Signal(syscall.SIGKILL)
	g.p.wait()
	s.shows("ended-255")
	s = u.screen(bin, "shell", name)
	s.shows("round-1")
	pid := s.tmux("list-panes", "-F", "#{pane_pid}")
	if err := proc.Run(t.Context(), proc.Spec{Argv: []string{"pkill", "-KILL", "-P", strings.TrimSpace(pid)}}); err != nil {
		t.Fatal(err)
	}
	s.shows("ended-137")
	s = u.screen(bin, "ssh", name)
	s.shows("round-")
	s.press("C-c")
	s.press("echo over-$((n > 3))", "Enter")
	s.shows("over-1")
	s.press("C-b", "d")
	s.shows("ended-0")
	if c := u.run("", "ssh", name, "--", "tmux show-options -g history-limit; exit 5"); c.code != 5 || c.stdout != "history-limit 50000\n" {
		t.Errorf("exit code %d, %q", c.code, c.stdout)
	}
	if c := u.run("", "ssh-cmd", name); c.code != 0 || !strings.Contains(c.stdout, name+"@127.0.0.1") {
		t.Errorf("exit code %d, %q", c.code, c.stdout)
	}
	for _, verb := range []string{"ssh", "ssh-cmd", "ssh-config"} {
		if c := u.run("", verb, "none"); c.code != workorder.ExitNotFound {
			t.Errorf("%s: exit code %d", verb, c.code)
		}
	}
	for _, args := range [][]string{{"--listen", ":2200"}, {"--listen", "localhost"}, {"--authorized-keys", "/none"}, nil} {
		if c := u.run("", append([]string{"gateway"}, args...)...); c.code != workorder.ExitUsage {
			t.Errorf("%q: exit code %d", args, c.code)
		}
	}
}
