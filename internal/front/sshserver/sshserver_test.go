package sshserver

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

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

func TestServeKnown(t *testing.T) {
	t.Parallel()
	f := &fake{rows: []SandboxInfo{{Name: "dev"}, {Name: "other"}}}
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
