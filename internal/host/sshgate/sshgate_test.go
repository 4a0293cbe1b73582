package sshgate

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// fake are sandboxes whose commands are functions of this program.
type fake struct {
	rows []Row
	mu   sync.Mutex
	ran  []string // name and line of each command
	open int
}

func (f *fake) List(context.Context) ([]Row, error) { return f.rows, nil }

func (f *fake) Open(_ context.Context, name string) (Sandbox, error) {
	if !slices.ContainsFunc(f.rows, func(r Row) bool { return r.Name == name }) {
		return nil, ErrNotFound
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	return &fakeSandbox{f, name}, nil
}

type fakeSandbox struct {
	f    *fake
	name string
}

func (b *fakeSandbox) Run(ctx context.Context, c Command) (int, error) {
	b.f.mu.Lock()
	b.f.ran = append(b.f.ran, b.name+"|"+c.Line)
	b.f.mu.Unlock()
	switch word, rest, _ := strings.Cut(c.Line, " "); word {
	case "exit":
		var code int
		_, err := fmt.Sscan(rest, &code)
		return code, err
	case "cat":
		_, err := io.Copy(c.Stdout, c.Stdin)
		return 0, err
	case "err":
		_, err := io.WriteString(c.Stderr, rest)
		return 0, err
	case "fail":
		return 0, errors.New("broken\x1b[2J")
	case "env":
		_, err := io.WriteString(c.Stdout, strings.Join(c.Env, " "))
		return 0, err
	case "signal":
		_, _ = io.WriteString(c.Stdout, "ready\n")
		return 128 + int(<-c.Signals), nil
	case "size":
		s := <-c.Resized
		return int(s.Rows), nil
	case "":
		if c.Terminal == nil {
			return 0, nil
		}
		fmt.Fprintf(c.Stdout, "%s %dx%d ", b.name, c.Terminal.Cols, c.Terminal.Rows)
		typed, _ := bufio.NewReader(c.Stdin).ReadString('\r')
		_, err := io.WriteString(c.Stdout, "typed "+typed)
		return 0, err
	case "wait":
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return 127, nil
}

func (b *fakeSandbox) Reach(_ context.Context, port int) (net.Conn, error) {
	if port != 80 {
		return nil, errors.New("nothing listens there")
	}
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.Copy(theirs, io.MultiReader(strings.NewReader("port 80 says "), io.LimitReader(theirs, 2)))
		_ = theirs.Close()
	}()
	return ours, nil
}

func (b *fakeSandbox) Files(context.Context) (io.ReadWriteCloser, error) {
	if b.name == "other" { // it answers at the end of all questions
		q, asked := io.Pipe()
		answer, a := io.Pipe()
		go func() {
			all, err := io.ReadAll(q)
			_, _ = a.Write(all)
			_ = a.CloseWithError(err)
		}()
		return halves{answer, asked}, nil
	}
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.Copy(theirs, io.LimitReader(theirs, 3))
		_ = theirs.Close()
	}()
	return ours, nil
}

// halves are a connection whose directions end apart.
type halves struct {
	*io.PipeReader
	in *io.PipeWriter
}

func (h halves) Write(p []byte) (int, error) { return h.in.Write(p) }
func (h halves) CloseWrite() error           { return h.in.Close() }
func (h halves) Close() error                { return errors.Join(h.in.Close(), h.PipeReader.Close()) }

func (b *fakeSandbox) Close(context.Context) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	b.f.open--
	return nil
}

// gate is a running gateway.
type gate struct {
	t    *testing.T
	fake *fake
	addr string
	key  ssh.Signer
}

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{t: t, key: newKey(t), fake: &fake{rows: []Row{
		{Name: "dev", State: "running", What: "debian"}, {Name: "evil\x1b[2J\nx", State: "gone"}, {Name: "other", State: "stopped", Created: time.Now().Add(-3 * time.Hour)},
	}}}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = l.Addr().String()
	s := New(Options{
		HostKey: newKey(t), Sandboxes: g.fake, Log: slog.New(slog.DiscardHandler),
		Keys: func() ([]ssh.PublicKey, error) { return []ssh.PublicKey{g.key.PublicKey()}, nil },
	})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-over:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the gateway does not end")
		}
		if g.fake.open != 0 {
			t.Errorf("%d sandboxes are left open", g.fake.open)
		}
	})
	return g
}

func (g *gate) dial(user string, methods ...ssh.AuthMethod) (*ssh.Client, error) {
	if methods == nil {
		methods = []ssh.AuthMethod{ssh.PublicKeys(g.key)}
	}
	return ssh.Dial("tcp", g.addr, &ssh.ClientConfig{User: user, Auth: methods, HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: 10 * time.Second})
}

func (g *gate) client(user string) *ssh.Client {
	g.t.Helper()
	c, err := g.dial(user)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

// run is what `ssh user@gateway line` does.
func (g *gate) run(user, line, stdin string) (out, errOut string, code int) {
	g.t.Helper()
	s, err := g.client(user).NewSession()
	if err != nil {
		g.t.Fatal(err)
	}
	var o, e bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader(stdin), &o, &e
	if line == "" {
		if err = s.Shell(); err == nil {
			err = s.Wait()
		}
	} else {
		err = s.Run(line)
	}
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitStatus()
	case err != nil:
		g.t.Fatal(err)
	}
	return o.String(), e.String(), code
}

func TestCommands(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for _, c := range []struct {
		user, line, in string
		out, errOut    string
		code           int
		ran            string
	}{
		{"x", "dev exit 9", "", "", "", 9, "dev|exit 9"},
		{"dev", "exit 7", "", "", "", 7, "dev|exit 7"},
		{"dev", "other", "", "", "", 127, "dev|other"},
		{"x", "other cat", "in", "in", "", 0, "other|cat"},
		{"x", "dev err e; touch /tmp/x", "", "", "e; touch /tmp/x", 0, "dev|err e; touch /tmp/x"},
		{"x", "dev", "", "", "", 0, "dev|"},
		{"dev", "", "", "", "", 0, "dev|"},
		{"dev", "fail", "", "", "error: broken\n", 1, "dev|fail"},
	} {
		g.fake.ran = nil
		out, errOut, code := g.run(c.user, c.line, c.in)
		if out != c.out || errOut != c.errOut || code != c.code || !slices.Equal(g.fake.ran, []string{c.ran}) {
			t.Errorf("%s, %q: %q, %q, %d, ran %q", c.user, c.line, out, errOut, code, g.fake.ran)
		}
	}
}

// TestNames: what is no sandbox's name is nothing else either.
func TestNames(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for _, line := range []string{"s; touch /tmp/pwn", "dev; touch /tmp/pwn", "'dev'", "$(dev)", "dev\ttrue", "nope true", "../dev", strings.Repeat("a", 1<<15), "x\x1b[2J", "-h"} {
		out, errOut, code := g.run("x", line, "")
		if out != "" || code != exitNotFound || len(g.fake.ran) != 0 || !strings.Contains(errOut, "dev") || strings.Contains(errOut, "\x1b") || strings.Count(errOut, "\n") != 5 {
			t.Errorf("%q: %q, %q, %d, ran %q", line, out, errOut, code, g.fake.ran)
		}
	}
	if out, errOut, code := g.run("x", "", ""); code != 0 || errOut != "" || !strings.Contains(out, "other") || !strings.Contains(out, "3h") || strings.Contains(out, "\x1b") {
		t.Errorf("the list: %q, %q, %d", out, errOut, code)
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	session := func(setup func(s *ssh.Session) error, line string) (string, int) {
		t.Helper()
		s, err := g.client("dev").NewSession()
		if err == nil {
			err = setup(s)
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Output(line)
		var exit *ssh.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if exit != nil {
			return string(out), exit.ExitStatus()
		}
		return string(out), 0
	}
	// Of its environment a client brings its language and its kind of terminal.
	out, _ := session(func(s *ssh.Session) error {
		for _, name := range []string{"LD_PRELOAD", "PATH", "LC_X\x00Y"} {
			if s.Setenv(name, "x") == nil {
				t.Errorf("%q is taken", name)
			}
		}
		if s.Setenv("LC_CTYPE", "\xff") == nil {
			t.Error("what is no text is taken")
		}
		return errors.Join(s.Setenv("LANG", "C.UTF-8"), s.Setenv("LC_ALL", "C"), s.RequestPty("xterm", 30, 100, nil))
	}, "env")
	if out != "LANG=C.UTF-8 LC_ALL=C TERM=xterm" {
		t.Errorf("environment: %q", out)
	}
	if out, _ := session(func(s *ssh.Session) error { return s.RequestPty("\xff", 30, 100, nil) }, "env"); out != "" {
		t.Errorf("environment: %q", out)
	}
	if _, code := session(func(s *ssh.Session) error {
		return errors.Join(s.RequestPty("xterm", 30, 100, nil), s.WindowChange(50, 120), s.WindowChange(60, 120))
	}, "size"); code != 60 {
		t.Errorf("size: %d", code)
	}
	// The client's agent and display are not taken.
	session(func(s *ssh.Session) error {
		for _, kind := range []string{"auth-agent-req@openssh.com", "x11-req", "unknown"} {
			if ok, err := s.SendRequest(kind, true, nil); ok || err != nil {
				t.Errorf("%s: %t, %v", kind, ok, err)
			}
		}
		return nil
	}, "exit 0")
	s, err := g.client("dev").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("signal"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	// What runs has its environment and its terminal, and nothing else begins beside it.
	for _, kind := range []string{"shell", "exec", "subsystem", "env", "pty-req"} {
		payload := ssh.Marshal(struct{ Name, Value string }{"LANG", "C"})
		if kind == "exec" {
			payload = ssh.Marshal(struct{ Line string }{"exit 1"})
		}
		if ok, err := s.SendRequest(kind, true, payload); ok || err != nil {
			t.Errorf("%s: %t, %v", kind, ok, err)
		}
	}
	if err := s.Signal(ssh.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *ssh.ExitError
	if err := s.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 128+int(syscall.SIGINT) {
		t.Error(err)
	}
}

func TestForward(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := g.client("dev")
	conn, err := c.Dial("tcp", "localhost:80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hi")); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || string(b) != "port 80 says hi" {
		t.Errorf("%q, %v", b, err)
	}
	for user, addr := range map[string]string{"dev": "localhost:81", "x": "localhost:80"} {
		if _, err := g.client(user).Dial("tcp", addr); err == nil {
			t.Errorf("%s at %s", user, addr)
		}
	}
	// What the sandbox's network reaches is not reached by the gateway's way, and no port of this machine leads into a client.
	for _, addr := range []string{"10.0.0.1:80", "example.com:80", "0.0.0.0:80", "127.0.0.2:80"} {
		if _, err := c.Dial("tcp", addr); err == nil {
			t.Error(addr)
		}
	}
	if _, err := c.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("a port of this machine")
	}
	if _, err := c.Dial("unix", "/var/run/docker.sock"); err == nil {
		t.Error("a socket")
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for user, want := range map[string]string{"dev": "abc", "other": "abc", "x": ""} {
		s, err := g.client(user).NewSession()
		if err != nil {
			t.Fatal(err)
		}
		in, err := s.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.RequestSubsystem("sftp"); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			if _, err := io.WriteString(in, "abc"); err != nil {
				t.Fatal(err)
			}
		}
		if user == "other" {
			_ = in.Close() // what it has asked is answered all the same
		}
		if b, err := io.ReadAll(out); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", user, b, err)
		}
	}
	s, err := g.client("dev").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestSubsystem("netconf"); err == nil {
		t.Error("another subsystem")
	}
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	asked := false
	for name, methods := range map[string][]ssh.AuthMethod{
		"another key": {ssh.PublicKeys(newKey(t))},
		"no key":      {},
		"a password":  {ssh.Password("x")},
		"questions": {ssh.KeyboardInteractive(func(string, string, []string, []bool) ([]string, error) {
			asked = true
			return nil, nil
		})},
	} {
		if c, err := g.dial("dev", methods...); err == nil {
			_ = c.Close()
			t.Errorf("%s opens the gateway", name)
		}
	}
	if asked {
		t.Error("the gateway asks questions")
	}
	if c, err := g.dial(strings.Repeat("u", 1<<20)); err == nil {
		_ = c.Close()
		t.Error("a user name of 1 MB")
	}
	if out, _, code := g.run(strings.Repeat("u", 1<<10), "", ""); code != 0 || out == "" {
		t.Errorf("a user name of 1 KB: %d", code)
	}
	// A key that is taken away is out at once.
	g.key = newKey(t)
	if _, _, code := g.run("dev", "exit 3", ""); code != 3 {
		t.Errorf("the new key: %d", code)
	}
}

// TestFlood: a thousand strangers who say nothing keep nobody out.
func TestFlood(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	var all []net.Conn
	for range 1000 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", g.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
	}
	if _, _, code := g.run("dev", "exit 5", ""); code != 5 {
		t.Errorf("%d", code)
	}
	ended := make(chan struct{}, len(all))
	for _, conn := range all {
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			ended <- struct{}{}
		}()
	}
	soon := time.After(handshakeTime / 2) // all are let go in the end
	for n := range len(all) - maxPending {
		select {
		case <-ended:
		case <-soon:
			t.Fatalf("%d strangers are held", len(all)-n)
		}
	}
	c := g.client("dev")
	var sessions []*ssh.Session
	for range maxChannels {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	if _, err := c.NewSession(); err == nil {
		t.Error("no bound of channels")
	}
	_ = sessions[0].Close()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if s, err := c.NewSession(); err == nil {
			_ = s.Close()
			break
		}
		if time.Now().After(until) {
			t.Fatal("a channel that has ended still counts")
		}
	}
}

// TestGone: what runs for a client ends with it.
func TestGone(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := g.client("dev")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("wait"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		g.fake.mu.Lock()
		open := g.fake.open
		g.fake.mu.Unlock()
		if open == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatal("the command goes on")
		}
	}
}

// TestPicker: the keys choose, and what is typed behind the choice is the sandbox's.
func TestPicker(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for _, c := range []struct{ keys, want string }{
		{"\r", "dev"}, {"jj\r", "other"}, {"jjk\x1b[Bkj\r", "other"}, {"/oth\r", "other"}, {"/zz\r\x7f\x7fde\r", "dev"}, {"q", ""}, {"\x03", ""},
	} {
		s, err := g.client("x").NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.RequestPty("xterm", 30, 100, nil); err != nil {
			t.Fatal(err)
		}
		in, err := s.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Shell(); err != nil {
			t.Fatal(err)
		}
		seen := &watched{r: out}
		seen.until(t, "other")
		for _, k := range strings.SplitAfter(c.keys, "") {
			if _, err := io.WriteString(in, k); err != nil {
				t.Fatal(err)
			}
		}
		if c.want != "" {
			seen.until(t, c.want+" 100x30 ")
			if _, err := io.WriteString(in, "abc\r"); err != nil {
				t.Fatal(err)
			}
			seen.until(t, "typed abc\r")
		}
		if err := s.Wait(); err != nil {
			t.Errorf("%q: %v", c.keys, err)
		}
		if i := bytes.IndexByte(seen.all, '\n'); i == 0 || i > 0 && seen.all[i-1] != '\r' {
			t.Errorf("%q: a bare line feed", c.keys)
		}
	}
	// A terminal without keys.
	s, err := g.client("x").NewSession()
	if err == nil {
		err = s.RequestPty("", 0, 0, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Output(""); err != nil {
		t.Error(err)
	}
}

// TestPickerOfManyCells: the list on the largest terminal takes no more than on a usual one. Nothing runs beside it: it counts what is allocated.
func TestPickerOfManyCells(t *testing.T) {
	g := newGate(t)
	s, err := g.client("x").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	in, ierr := s.StdinPipe()
	out, oerr := s.StdoutPipe()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := errors.Join(ierr, oerr, s.RequestPty("xterm", 1<<20, 1<<20, nil), s.Shell()); err != nil {
		t.Fatal(err)
	}
	seen := &watched{r: out}
	seen.until(t, "other")
	if err := s.WindowChange(1<<19, 1<<19); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "q"); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	const most = 512 << 20
	if n := after.TotalAlloc - before.TotalAlloc; n > most {
		t.Errorf("%d bytes", n)
	}
}

// watched is output that is waited for.
type watched struct {
	r   io.Reader
	all []byte
}

func (w *watched) until(t *testing.T, want string) {
	t.Helper()
	b := make([]byte, 4096)
	for !bytes.Contains(w.all, []byte(want)) {
		n, err := w.r.Read(b)
		w.all = append(w.all, b[:n]...)
		if err != nil {
			t.Fatalf("no %q: %v\n%q", want, err, w.all)
		}
	}
}

func TestServeKnown(t *testing.T) {
	t.Parallel()
	f := &fake{rows: []Row{{Name: "dev"}, {Name: "other"}}}
	s := New(Options{HostKey: newKey(t), Sandboxes: f, Log: slog.New(slog.DiscardHandler)})
	ours, theirs := joined(t)
	over := make(chan error)
	go func() { over <- s.ServeKnown(t.Context(), theirs, "dev") }()
	conn, channels, requests, err := ssh.NewClientConn(ours, "", &ssh.ClientConfig{User: "other", HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	c := ssh.NewClient(conn, channels, requests)
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Run("other"); err == nil || !slices.Equal(f.ran, []string{"dev|other"}) {
		t.Errorf("%v, ran %q", err, f.ran)
	}
	_ = c.Close()
	if err := <-over; err != nil || f.open != 0 {
		t.Errorf("%v, %d open", err, f.open)
	}
}

// joined are both ends of a connection.
func joined(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// TestSlow: a stranger who takes too long is let go.
func TestSlow(t *testing.T) {
	t.Parallel()
	s := New(Options{HostKey: newKey(t), Sandboxes: &fake{}, Log: slog.New(slog.DiscardHandler)})
	s.patience = 50 * time.Millisecond
	ours, theirs := joined(t)
	go s.stranger(t.Context(), theirs, s.pend(theirs))
	if _, err := io.WriteString(ours, "SSH-2.0-slow\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = ours.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(ours); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it is held")
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	key, err := HostKey(file)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if again, err := HostKey(file); err != nil || !bytes.Equal(again.PublicKey().Marshal(), key.PublicKey().Marshal()) {
		t.Errorf("another key, %v", err)
	}
	line := string(ssh.MarshalAuthorizedKey(key.PublicKey()))
	cert := &ssh.Certificate{Key: key.PublicKey(), CertType: ssh.UserCert, ValidBefore: 1} // of long ago
	if err := cert.SignCert(rand.Reader, key); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]int{
		"": 0, "# comment\n\n" + line: 1, line + line + "\n": 2, "no key\n": -1, line + "nothing": -1, "command=\"true\" " + line: -1, "cert-authority " + line: -1,
		"no-touch-required " + line: -1, string(ssh.MarshalAuthorizedKey(cert)): -1, strings.Repeat(line, maxKeys/len(line)+1): -1,
	} {
		keys := filepath.Join(dir, "authorized")
		if err := os.WriteFile(keys, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadKeys(keys); (err != nil) != (want < 0) || err == nil && len(got) != want {
			t.Errorf("%.60q: %d keys, %v", content, len(got), err)
		}
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := HostKey(file); err == nil {
		t.Error("others can read the key")
	}
}
