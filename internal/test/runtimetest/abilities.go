package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

func (s suite) abilities(t *testing.T) {
	t.Helper()
	if c, ok := s.e.(runtime.Copier); ok {
		t.Run("copy", func(t *testing.T) { s.copies(t, c) })
	}
	if x, ok := s.e.(runtime.Execer); ok {
		t.Run("exec", func(t *testing.T) { s.execs(t, x) })
	}
	if i, ok := s.e.(runtime.ImageStore); ok {
		t.Run("images", func(t *testing.T) { s.images(t, i) })
	}
	if r, ok := s.e.(runtime.StandbyRuntime); ok {
		t.Run("standby", func(t *testing.T) { s.standby(t, r) })
	}
}

func (s suite) copies(t *testing.T, c runtime.Copier) {
	t.Helper()
	id := s.start(t, "x\n")
	await(t, s.e, s.spec)
	for from, name := range map[string]string{"/out": "out/file", "/out/file": "file"} {
		r, err := c.CopyOut(t.Context(), id, from)
		if err != nil {
			t.Fatal(err)
		}
		checkArchive(t, r, name)
		r.Close()
	}
	if _, err := c.CopyOut(t.Context(), id, "/absent"); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("copy of an absent directory: %v", err)
	}
	r, err := c.CopyOut(t.Context(), id, "/out/file")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := c.CopyIn(t.Context(), id, "/", r); err != nil {
		t.Fatal(err)
	}
	back, err := c.CopyOut(t.Context(), id, "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	checkArchive(t, back, "file")
	s.remove(t, id)
	if _, err := c.CopyOut(t.Context(), id, "/out"); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("copy out of an absent sandbox: %v", err)
	}
}

func (s suite) execs(t *testing.T, x runtime.Execer) {
	t.Helper()
	id := s.start(t, "wait\n")
	s.begun(t, id)
	input := strings.Repeat("0123456789abcdef", 20_000) + "\n"
	var out, noise bytes.Buffer
	code, err := x.Exec(t.Context(), id, runtime.ExecSpec{
		Argv: []string{EchoProgram}, Stdin: strings.NewReader(input), Stdout: &out,
		Stderr: &noise,
	})
	if err != nil || code != 7 || out.String() != input || noise.String() != "noise\n" {
		t.Errorf("exit %d, %v, %d bytes of output, %q", code, err, out.Len(), noise.String())
	}
	if code, err := x.Exec(t.Context(), id, runtime.ExecSpec{Argv: []string{EchoProgram}}); err != nil || code != 7 {
		t.Errorf("without input and output: exit %d, %v", code, err)
	}
	if code, err := x.Exec(t.Context(), id, runtime.ExecSpec{Argv: []string{"/absent"}}); err == nil && code != 126 && code != 127 {
		t.Errorf("an absent program: exit %d", code)
	}
	s.terminals(t, x, id)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := x.Exec(ctx, id, runtime.ExecSpec{Argv: []string{EchoProgram}, Stdin: strings.NewReader("wait\n"), Stdout: cancelling{cancel}})
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a command that is given up: %v", err)
		}
	case <-time.After(time.Minute): // bounds a hang only
		t.Error("Exec goes on after its context")
	}
	s.remove(t, id)
	if _, err := x.Exec(t.Context(), id, runtime.ExecSpec{Argv: []string{EchoProgram}}); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("in an absent sandbox: %v", err)
	}
}

// terminals runs a command with and without a terminal, and makes that one narrower.
func (s suite) terminals(t *testing.T, x runtime.Execer, id string) {
	t.Helper()
	argv := []string{EchoProgram, "size"}
	var out bytes.Buffer
	if code, err := x.Exec(t.Context(), id, runtime.ExecSpec{Argv: argv, Stdout: &out}); err != nil || code != 7 ||
		strings.TrimSpace(out.String()) != "no terminal" {
		t.Errorf("without a terminal: exit %d, %v, %q", code, err, out.String())
	}
	sizes := make(chan runtime.Size, 1)
	seen := &narrowing{sizes: sizes}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // bounds a hang only
	defer cancel()
	code, err := x.Exec(ctx, id, runtime.ExecSpec{
		Argv: argv, Stdin: strings.NewReader(""), Stdout: seen,
		Terminal: &runtime.Terminal{Size: runtime.Size{Width: 100, Height: 40}, Resized: sizes},
	})
	if err != nil || code != 7 || !strings.Contains(seen.seen.String(), "100x40") || !strings.Contains(seen.seen.String(), "7x3") {
		t.Errorf("with a terminal: exit %d, %v, %q", code, err, seen.seen.String())
	}
}

// narrowing makes a terminal narrower once its first size was seen.
type narrowing struct {
	seen  strings.Builder
	sizes chan<- runtime.Size
	done  bool
}

func (n *narrowing) Write(p []byte) (int, error) {
	n.seen.Write(p)
	if !n.done && strings.Contains(n.seen.String(), "100x40") {
		n.done = true
		n.sizes <- runtime.Size{Width: 7, Height: 3}
	}
	return len(p), nil
}

// cancelling ends a context once there is output.
type cancelling struct{ cancel func() }

func (c cancelling) Write(p []byte) (int, error) {
	c.cancel()
	return len(p), nil
}

// begun waits until the box's program has its input.
func (s suite) begun(t *testing.T, id string) {
	t.Helper()
	if err := s.e.Logs(t.Context(), id, runtime.LogOptions{Follow: true, Stdout: lineSeen{}}); !errors.Is(err, errSeen) {
		t.Fatalf("follow: %v", err)
	}
}

func (s suite) images(t *testing.T, i runtime.ImageStore) {
	t.Helper()
	if id, err := i.ImageID(t.Context(), s.spec.Image); err != nil || id == "" {
		t.Errorf("the sandbox's image is %q, %v", id, err)
	}
	const absent = "sandbox-agent-test/absent:1"
	if id, err := i.ImageID(t.Context(), absent); err != nil || id != "" {
		t.Errorf("an absent image is %q, %v", id, err)
	}
	r, err := i.SaveImage(t.Context(), s.spec.Image)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := r.Read(make([]byte, 1)); n == 0 {
		t.Errorf("the archive is empty: %v", err)
	}
}
