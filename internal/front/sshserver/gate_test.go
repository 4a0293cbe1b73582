package sshserver

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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// fake are sandboxes whose commands are functions of this program.
type fake struct {
	rows []SandboxInfo
	mu   sync.Mutex
	ran  []string // name and line of each command
	open int
}

func (f *fake) List(context.Context) ([]SandboxInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.rows), nil
}

func (f *fake) Create(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name == "bad" {
		return errors.New("not a valid name")
	}
	f.rows = append(f.rows, SandboxInfo{Name: name})
	return nil
}

func (f *fake) Remove(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = slices.DeleteFunc(f.rows, func(r SandboxInfo) bool { return r.Name == name })
	return nil
}

func (f *fake) Open(_ context.Context, name string) (Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.rows, func(r SandboxInfo) bool { return r.Name == name }) {
		return nil, ErrNotFound
	}
	f.open++
	return &fakeSandbox{f, name}, nil
}

type fakeSandbox struct {
	f    *fake
	name string
}

func (b *fakeSandbox) Run(ctx context.Context, c ExecRequest) (int, error) {
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

func (b *fakeSandbox) DialPort(_ context.Context, port int) (net.Conn, error) {
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

func (h halves) CloseWrite() error { return h.in.Close() }

func (h halves) Close() error { return errors.Join(h.in.Close(), h.PipeReader.Close()) }

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
	g := &gate{t: t, key: newKey(t), fake: &fake{rows: []SandboxInfo{
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
