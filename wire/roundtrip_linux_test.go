package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/files"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wireserver"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "files" {
		if err := files.Main(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "reap" {
		os.Exit(supervise.Main(context.Background()))
	}
	os.Exit(m.Run())
}

// guest is a server of the real commands of this machine.
type guest struct {
	socket string
	ended  chan error
}

func newGuest(t *testing.T, change func(*wireserver.Config)) *guest {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "w") //nolint:usetesting // a socket's path is short, a test's folder is not
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := wireserver.Config{
		Dir: dir, Home: dir, Env: os.Environ(), Self: self, Reap: []string{"reap"}, Files: []string{"files"},
		OOMKills: func() int { return 0 },
	}
	if change != nil {
		change(&c)
	}
	g := &guest{filepath.Join(dir, "s"), make(chan error, 1)}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", g.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	over := make(chan struct{})
	go func() { g.ended <- wireserver.New(c).Serve(ctx, l); close(over) }()
	t.Cleanup(func() { cancel(); <-over })
	return g
}

func (g *guest) client(t *testing.T) *wireclient.Client {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", g.socket)
	if err != nil {
		t.Fatal(err)
	}
	c, err := wireclient.New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func sh(script string) wire.Command { return wire.Command{Argv: []string{"sh", "-c", script}} }

type outcome struct {
	out, err string
	exit     wire.Exit
}

func run(t *testing.T, c *wireclient.Client, cmd wire.Command, stdin string) outcome {
	t.Helper()
	p, err := c.Start(t.Context(), cmd, strings.NewReader(stdin))
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	exit, err := p.Follow(t.Context(), &out, &errOut, nil)
	if err != nil {
		t.Fatal(err)
	}
	exit.DurationMS = 0
	return outcome{out.String(), errOut.String(), exit}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	c := newGuest(t, nil).client(t)
	for name, row := range map[string]struct {
		cmd   wire.Command
		stdin string
		want  outcome
	}{
		"input, folder, variable, both streams, code": {
			wire.Command{Argv: []string{"sh", "-c", `cat; pwd; echo $A; echo e >&2; exit 7`}, Dir: "/tmp", Env: []string{"A=b"}},
			"hi\n",
			outcome{"hi\n/tmp\nb\n", "e\n", wire.Exit{Code: 7}},
		},
		"no input":       {sh("cat; echo end"), "", outcome{"end\n", "", wire.Exit{}}},
		"input not read": {sh("exit 3"), strings.Repeat("x", 1<<20), outcome{"", "", wire.Exit{Code: 3}}},
		"a signal":       {sh("kill -TERM $$"), "", outcome{"", "", wire.Exit{Code: 143, Signal: 15}}},
		"a long argument": {
			wire.Command{Argv: []string{"printf", "%s", strings.Repeat("é", 60000)}},
			"",
			outcome{strings.Repeat("é", 60000), "", wire.Exit{}},
		},
		"left behind": {sh("sleep 60 & echo $!"), "", outcome{}},
		"a terminal": {wire.Command{
			Argv:     []string{"sh", "-c", "stty size; tty >/dev/null && echo $TERM"},
			Terminal: &wire.Size{Rows: 33, Cols: 77},
		}, "", outcome{"33 77\r\nxterm-256color\r\n", "", wire.Exit{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, c, row.cmd, row.stdin)
			if name == "left behind" { // it is the sandbox's, and its output does not hold the command's end
				pid, err := strconv.Atoi(strings.TrimSpace(got.out))
				if err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
					t.Errorf("process %q: %v", got.out, err)
				}
				got = outcome{}
			}
			if got != row.want {
				t.Errorf("%.200q, want %.200q", fmt.Sprint(got), fmt.Sprint(row.want))
			}
		})
	}
}

// A terminal has the size that its user gives it, and ^C reaches the command alone.
func TestTerminal(t *testing.T) {
	t.Parallel()
	c := newGuest(t, nil).client(t)
	keys, typed := io.Pipe()
	p, err := c.Start(t.Context(),
		wire.Command{
			Argv:     []string{"sh", "-c", "trap 'stty size' WINCH; trap 'exit 5' INT; echo ready; while :; do sleep 0.01; done"},
			Terminal: &wire.Size{Rows: 5, Cols: 9},
		}, keys)
	if err != nil {
		t.Fatal(err)
	}
	shown, screen := io.Pipe()
	ended := make(chan wire.Exit, 1)
	go func() {
		exit, err := p.Follow(t.Context(), screen, nil, nil)
		ended <- exit
		screen.CloseWithError(errors.Join(io.EOF, err))
	}()
	line := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(shown, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
	line("ready\r\n")
	if err := c.Resize(t.Context(), p.ID(), wire.Size{Rows: 44, Cols: 111}); err != nil {
		t.Fatal(err)
	}
	line("44 111\r\n")
	if _, err := typed.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, shown) }()
	if exit := <-ended; exit.Code != 5 {
		t.Errorf("%+v", exit)
	}
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	c := newGuest(t, nil).client(t)
	for name, want := range map[string]int{"no-such-program": 127, "/etc/passwd": 126} {
		if got := run(t, c, wire.Command{Argv: []string{name}}, ""); got.exit.Code != want || got.exit.Error == "" {
			t.Errorf("%s: %+v, want %d", name, got.exit, want)
		}
	}
	for name, row := range map[string]struct {
		cmd  wire.Command
		want wire.Code
	}{
		"no folder":       {wire.Command{Argv: []string{"true"}, Dir: "/no/such"}, wire.CodeNotFound},
		"nothing to run":  {wire.Command{}, wire.CodeBadRequest},
		"a wrong program": {wire.Command{Argv: []string{"a\x00"}}, wire.CodeBadRequest},
	} {
		_, err := c.Start(t.Context(), row.cmd, nil)
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != row.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A command whose time is over ends with all that it started, also where that took itself away; the guest lives.
func TestTimeout(t *testing.T) {
	t.Parallel()
	c := newGuest(t, nil).client(t)
	mark := strconv.Itoa(700000 + os.Getpid()%100000)
	got := run(t, c, wire.Command{Argv: []string{
		"sh", "-c",
		strings.ReplaceAll("setsid sleep M & env -i setsid -f sleep M; (sleep M &); sleep M", "M", mark),
	}, TimeoutMS: 300}, "")
	if !got.exit.TimedOut || got.exit.Code != 143 {
		t.Errorf("%+v", got.exit)
	}
	if left := run(t, c, wire.Command{Argv: []string{"pgrep", "-fx", "sleep " + mark}}, ""); left.out != "" {
		t.Errorf("left: %s", left.out)
	}
}

// Who started a command of the background may go; whoever comes later has all of its output, once, from any byte on.
func TestBackground(t *testing.T) {
	t.Parallel()
	g := newGuest(t, nil)
	first := g.client(t)
	cmd := sh("for i in $(seq 100); do echo $i; sleep 0.005; done; echo end >&2; exit 4")
	cmd.Background = true
	p, err := first.Start(t.Context(), cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	second := g.client(t)
	var want strings.Builder
	for i := range 100 {
		fmt.Fprintln(&want, i+1)
	}
	for _, from := range []int64{0, 5, 291} {
		again, err := second.Attach(t.Context(), p.ID(), from)
		if err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		exit, err := again.Follow(t.Context(), &out, &errOut, nil)
		// The two streams have no order between them: which bytes are before an offset is known of both together.
		whole := strings.HasSuffix(want.String(), out.String()) && strings.HasSuffix("end\n", errOut.String())
		if err != nil || exit.Code != 4 || !whole || int64(out.Len()+errOut.Len())+from != int64(want.Len()+4) {
			t.Errorf("from %d: %d bytes, %q, %+v, %v", from, out.Len(), errOut.String(), exit, err)
		}
	}
	all, err := second.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Exit == nil || all[0].Exit.Code != 4 || all[0].Output != int64(want.Len()+4) ||
		!slices.Equal(all[0].Argv, cmd.Argv) {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := second.Attach(t.Context(), "nobody", 0); err == nil {
		t.Error("attached to nothing")
	}
}

// A client that goes away takes its command along, and what that one started.
func TestClientGone(t *testing.T) {
	t.Parallel()
	g := newGuest(t, nil)
	first := g.client(t)
	mark := strconv.Itoa(800000 + os.Getpid()%100000)
	p, err := first.Start(t.Context(), sh("setsid sleep "+mark+" & echo ready; sleep "+mark), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() {
		_, err := p.Follow(t.Context(), w, nil, nil)
		w.CloseWithError(err)
	}()
	if _, err := io.ReadFull(r, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if _, err := io.ReadAll(r); !errors.Is(err, wireclient.ErrConnectionLost) {
		t.Errorf("the end of a lost stream: %v", err)
	}
	second := g.client(t)
	for len(run(t, second, wire.Command{Argv: []string{"pgrep", "-fx", "sleep " + mark}}, "").out) > 0 { // go test's own deadline ends it
		time.Sleep(10 * time.Millisecond)
	}
}

// Output larger than what the guest keeps comes whole to the client that started the command, however slow it is; of
// a command in the background the end is kept, and what is missing is counted.
func TestMuchOutput(t *testing.T) {
	t.Parallel()
	c := newGuest(t, nil).client(t)
	const size = 20 << 20
	cmd := sh(fmt.Sprintf("head -c %d /dev/zero; echo end", size))
	p, err := c.Start(t.Context(), cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	var n counter
	if exit, err := p.Follow(t.Context(), &n, nil, func(int64) { t.Error("something was lost") }); err != nil || exit.Code != 0 ||
		n != size+4 {
		t.Errorf("%d bytes, %+v, %v", n, exit, err)
	}
	cmd.Background = true
	if p, err = c.Start(t.Context(), cmd, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Follow(t.Context(), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if p, err = c.Attach(t.Context(), p.ID(), 0); err != nil {
		t.Fatal(err)
	}
	var lost int64
	n = 0
	if _, err := p.Follow(t.Context(), &n, nil, func(b int64) { lost += b }); err != nil || lost == 0 || int64(n)+lost != size+4 ||
		p.Offset() != size+4 {
		t.Errorf("%d bytes and %d lost, offset %d, %v", n, lost, p.Offset(), err)
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func TestInputAndSignal(t *testing.T) {
	t.Parallel()
	c := newGuest(t, nil).client(t)
	cat := wire.Command{Argv: []string{"cat"}, Background: true, KeepInput: true}
	p, err := c.Start(t.Context(), cat, strings.NewReader("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"b", "c"} {
		if err := c.Input(t.Context(), p.ID(), strings.NewReader(part), part == "c"); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if exit, err := p.Follow(t.Context(), &out, nil, nil); err != nil || exit.Code != 0 || len(out.String()) != 3 {
		t.Errorf("%q, %+v, %v", out.String(), exit, err)
	}
	if p, err = c.Start(t.Context(), cat, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(t.Context(), p.ID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Follow(t.Context(), nil, nil, nil); err != nil || exit.Signal != 15 {
		t.Errorf("%+v, %v", exit, err)
	}
	if p, err = c.Start(t.Context(), cat, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.End(t.Context(), p.ID()); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Follow(t.Context(), nil, nil, nil); err != nil || exit.Code != 143 || exit.TimedOut {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestDial(t *testing.T) {
	t.Parallel()
	c := newGuest(t, nil).client(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all, _ := io.ReadAll(conn)
			fmt.Fprintf(conn, "got %d", len(all))
			conn.Close()
		}
	}()
	conn, err := c.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, 100000)); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); string(b) != "got 100000" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ports, err := c.Ports(t.Context())
	if want, _ := strconv.Atoi(port); err != nil || !slices.Contains(ports, wire.Port{Port: want, Address: "127.0.0.1"}) {
		t.Errorf("port %s is not among %v, %v", port, ports, err)
	}
	l.Close()
	for network, address := range map[string]string{"tcp": l.Addr().String(), "unix": "/no/such/socket"} {
		_, err = c.Dial(t.Context(), network, address)
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeRefused {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// A client that has said all and goes away does not keep the sandbox from being idle, though what it was connected to says nothing.
func TestDialLeft(t *testing.T) {
	t.Parallel()
	g := newGuest(t, func(c *wireserver.Config) { c.IdleTimeout = time.Millisecond })
	c := g.client(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := c.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, server); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := <-g.ended; !errors.Is(err, wireserver.ErrIdleTimeout) { // go test's own deadline ends the wait
		t.Error(err)
	}
}

func TestEndsByItself(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*wireserver.Config)
		want   error
	}{
		"nobody uses it":      {func(c *wireserver.Config) { c.IdleTimeout = time.Millisecond }, wireserver.ErrIdleTimeout},
		"its life is over":    {func(c *wireserver.Config) { c.TTL = time.Millisecond }, wireserver.ErrTTLExpired},
		"the owner is silent": {func(c *wireserver.Config) { c.OwnerTimeout = time.Millisecond }, wireserver.ErrOwnerTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := <-newGuest(t, row.change).ended; !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
		})
	}
}

// A stop ends all commands, those of the background too.
func TestStop(t *testing.T) {
	t.Parallel()
	g := newGuest(t, nil)
	c := g.client(t)
	mark := strconv.Itoa(900000 + os.Getpid()%100000)
	cmd := sh("setsid sleep " + mark + " & echo ready; sleep " + mark)
	cmd.Background = true
	p, err := c.Start(t.Context(), cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() { _, err := p.Follow(t.Context(), w, nil, nil); w.CloseWithError(err) }()
	if _, err := io.ReadFull(r, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-g.ended; !errors.Is(err, wireserver.ErrStopped) {
		t.Error(err)
	}
	if left := run(t, newGuest(t, nil).client(t), wire.Command{Argv: []string{"pgrep", "-fx", "sleep " + mark}}, ""); left.out != "" {
		t.Errorf("left: %s", left.out)
	}
	if _, err := c.List(t.Context()); !errors.Is(err, wireclient.ErrConnectionLost) {
		t.Errorf("after the end: %v", err)
	}
}
