package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// held is a writer that is not there when something comes, as a busy machine is not.
type held struct {
	mu   sync.Mutex
	gate chan struct{}
	got  bytes.Buffer
}

func (h *held) Write(p []byte) (int, error) {
	<-h.gate
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got.Write(p)
}

func (h *held) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got.String()
}

// A child's output arrives, however late it is read, even if a process that it left behind keeps the pipe open.
func TestOutputThatIsReadLate(t *testing.T) {
	t.Parallel()
	const size = 60_000 // fits into the pipe, not into one read
	w := &held{gate: make(chan struct{})}
	p, err := Start(t.Context(), Spec{
		Argv: []string{"/bin/sh", "-c", fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x; sleep 60 & exit 0`, size)}, Stdout: w, Stderr: w,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Signal(syscall.SIGKILL)
	time.AfterFunc(2*pipeDelay, func() { close(w.gate) }) // later than the pipe is given up
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := w.text(); got != strings.Repeat("x", size) {
		t.Errorf("%d bytes arrived of %d", len(got), size)
	}
}

func TestFeedSettles(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	to := &held{gate: make(chan struct{})}
	close(to.gate)
	f := NewPipeCopier(r, to)
	if _, err := w.WriteString("first"); err != nil {
		t.Fatal(err)
	}
	f.Drain(0)
	if got := to.text(); got != "first" {
		t.Fatalf("settled with %q", got)
	}
	// It goes on for whoever has the pipe still.
	if _, err := w.WriteString(" second"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	<-f.Done()
	if got := to.text(); got != "first second" || f.Err() != nil {
		t.Errorf("%q, %v", got, f.Err())
	}
}

// A process that never stops writing does not keep its starter waiting.
func TestFeedIsCutInAFlood(t *testing.T) {
	t.Parallel()
	to := &held{gate: make(chan struct{})}
	close(to.gate)
	p, err := Start(t.Context(), Spec{Argv: []string{"/bin/sh", "-c", `echo mine; yes & exit 3`}, Stdout: to})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Signal(syscall.SIGKILL)
	if ExitCode(p.Wait()) != 3 || !strings.HasPrefix(to.text(), "mine\n") {
		t.Errorf("%v, %.20q", p.Wait(), to.text())
	}
}

type broken struct{ error }

func (b broken) Write([]byte) (int, error) { return 0, b.error }

func TestOutputThatCannotBePassedOn(t *testing.T) {
	t.Parallel()
	full := errors.New("no room")
	if err := Run(t.Context(), Spec{Argv: []string{"/bin/echo", "a"}, Stdout: broken{full}}); !errors.Is(err, full) || ExitCode(err) != -1 {
		t.Errorf("got %v", err)
	}
}
