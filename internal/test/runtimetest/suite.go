package runtimetest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

const (
	echoFile = "kept"
	// EchoProgram is where Echo lies in the image.
	EchoProgram = "/echo"
)

// Echo is the program that the suite expects under the spec's image: it copies its
// standard input to standard output, prints "noise" on standard error, writes "kept" to
// /out/file, waits for SIGTERM if the input is "wait", and exits with 7. With the argument "size" it
// prints the sizes of its terminal instead until one is 7 wide, or "no terminal", and exits with 7.
func Echo(b *Box) int {
	if slices.Contains(b.Args, "size") {
		return echoSizes(b)
	}
	in, err := io.ReadAll(b.Stdin)
	if err != nil {
		return 1
	}
	_, _ = b.Stdout.Write(in)
	_, _ = b.Stderr.Write([]byte("noise\n"))
	b.WriteFile("/out/file", []byte(echoFile))
	if bytes.Contains(in, []byte("wait")) {
		<-b.Stopped
	}
	return 7
}

func echoSizes(b *Box) int {
	if b.Terminal == nil {
		fmt.Fprintln(b.Stdout, "no terminal")
		return 7
	}
	for size := b.Terminal.Size; ; size = <-b.Terminal.Resized {
		if fmt.Fprintf(b.Stdout, "%dx%d\n", size.Width, size.Height); size.Width == 7 {
			return 7
		}
	}
}

// Conformance runs the suite, with the abilities of e. spec must name an image that has Echo as EchoProgram and starts it; its
// labels must match only the boxes of this run.
func Conformance(t *testing.T, e runtime.Runtime, spec runtime.ContainerSpec) {
	t.Helper()
	s := suite{e, spec}
	t.Run("info", func(t *testing.T) {
		if i, err := e.Info(t.Context()); err != nil || i.OSType != "linux" {
			t.Errorf("Info = %+v, %v", i, err)
		}
	})
	t.Run("output and end", s.outputAndEnd)
	t.Run("stop", s.stop)
	t.Run("absent", s.absent)
	t.Run("removed by many", s.together)
	t.Run("name taken", s.taken)
	t.Run("unavailable", s.refused)
	s.abilities(t)
}

type suite struct {
	e    runtime.Runtime
	spec runtime.ContainerSpec
}

func (s suite) start(t *testing.T, input string) string {
	t.Helper()
	id, err := s.e.Run(t.Context(), s.spec, strings.NewReader(input))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.e.Remove(context.WithoutCancel(t.Context()), id); err != nil {
			t.Error(err)
		}
	})
	return id
}

func (s suite) remove(t *testing.T, id string) {
	t.Helper()
	if err := s.e.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func (s suite) none(t *testing.T) {
	t.Helper()
	if boxes, err := s.e.Instances(t.Context(), s.spec.Labels); err != nil || len(boxes) != 0 {
		t.Errorf("sandboxes = %v, %v, want none", boxes, err)
	}
}

func (s suite) outputAndEnd(t *testing.T) {
	// More than a pipe holds, so that a write that is cut short is noticed.
	input := strings.Repeat("0123456789abcdef", 20_000) + "\n"
	id := s.start(t, input)
	var out, noise bytes.Buffer
	if err := s.e.Logs(t.Context(), id, runtime.LogOptions{Follow: true, Stdout: &out, Stderr: &noise}); err != nil {
		t.Fatal(err)
	}
	if out.String() != input || noise.String() != "noise\n" {
		t.Errorf("got %d and %d bytes of output", out.Len(), noise.Len())
	}
	out.Reset()
	noise.Reset()
	// An engine may count the lines of both streams together, and the pieces of a long line one by one.
	if err := s.e.Logs(t.Context(), id, runtime.LogOptions{Tail: 1, Stdout: &out, Stderr: &noise}); err != nil ||
		out.Len()+noise.Len() == 0 || !strings.HasSuffix(input, out.String()) {
		t.Errorf("the tail is %d and %d bytes, %v", out.Len(), noise.Len(), err)
	}
	box := await(t, s.e, s.spec)
	if box.ID != id || box.Name != s.spec.Name {
		t.Errorf("sandbox is %+v", box)
	}
	s.remove(t, id)
}

func (s suite) stop(t *testing.T) {
	id := s.start(t, "wait\n")
	s.begun(t, id)
	if err := s.e.Stop(t.Context(), id, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if box := await(t, s.e, s.spec); !strings.Contains(box.Status, "(7)") {
		t.Errorf("the sandbox was not allowed to end by itself: %s", box.Status)
	}
	if err := s.e.Stop(t.Context(), id, time.Second); err != nil {
		t.Errorf("stop a stopped sandbox: %v", err)
	}
	s.remove(t, id)
}

func (s suite) absent(t *testing.T) {
	id := s.start(t, "x\n")
	s.remove(t, id)
	if err := s.e.Remove(t.Context(), id); err != nil {
		t.Errorf("remove an absent sandbox: %v", err)
	}
	if err := s.e.Stop(t.Context(), id, time.Second); err != nil {
		t.Errorf("stop an absent sandbox: %v", err)
	}
	if err := s.e.Logs(t.Context(), id, runtime.LogOptions{Stdout: io.Discard}); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("logs of an absent sandbox: %v", err)
	}
	s.none(t)
}

// together removes one box several times at once: commands, companions and gc may do so.
// When any call returns, the box is gone.
func (s suite) together(t *testing.T) {
	id := s.start(t, "wait\n")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := s.e.Remove(t.Context(), id); err != nil {
				t.Errorf("remove a sandbox that others remove: %v", err)
			}
			s.none(t)
		})
	}
	wg.Wait()
}

func (s suite) taken(t *testing.T) {
	id := s.start(t, "wait\n")
	if _, err := s.e.Run(t.Context(), s.spec, strings.NewReader("x\n")); !errors.Is(err, runtime.ErrConflict) {
		t.Errorf("a second sandbox of the name: %v", err)
	}
	boxes, err := s.e.Instances(t.Context(), s.spec.Labels)
	if err != nil || len(boxes) != 1 || boxes[0].ID != id || !boxes[0].Running() {
		t.Errorf("the first one is %+v, %v", boxes, err)
	}
	s.remove(t, id)
}

func (s suite) refused(t *testing.T) {
	bad := s.spec
	bad.Image = "sandbox-agent-test/absent:1"
	if _, err := s.e.Run(t.Context(), bad, strings.NewReader("x")); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("absent image: %v", err)
	}
	bad = s.spec
	bad.OCIRuntime = "absent-runtime"
	if _, err := s.e.Run(t.Context(), bad, strings.NewReader("x")); !errors.Is(err, runtime.ErrIsolation) {
		t.Errorf("absent runtime: %v", err)
	}
	s.none(t)
}

// await waits until the box has ended: the state changes after the end of the stream.
func await(t *testing.T, e runtime.Runtime, spec runtime.ContainerSpec) runtime.Instance {
	t.Helper()
	for range 600 {
		boxes, err := e.Instances(t.Context(), spec.Labels)
		if err != nil {
			t.Fatal(err)
		}
		if len(boxes) != 1 {
			t.Fatalf("sandboxes = %v, want one", boxes)
		}
		if !boxes[0].Running() {
			return boxes[0]
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the sandbox does not end")
	return runtime.Instance{}
}

func checkArchive(t *testing.T, r io.Reader, name string) {
	t.Helper()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err != nil {
			t.Fatalf("%s is not in the archive: %v", name, err)
		}
		if h.Name == name {
			b, err := io.ReadAll(tr)
			if err != nil || string(b) != echoFile {
				t.Errorf("%s = %q, %v", name, b, err)
			}
			return
		}
	}
}

// errSeen ends a follow once there is output.
var errSeen = errors.New("output was seen")

type lineSeen struct{}

func (lineSeen) Write([]byte) (int, error) { return 0, errSeen }
