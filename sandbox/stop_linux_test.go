package sandbox_test

import (
	"errors"
	"io"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// A command has time to save its work when its sandbox is stopped.
// Docs: docs/sandboxes.md
func TestStopWithGrace(t *testing.T) {
	t.Parallel()
	m := jails(t)
	sb := named(t, m, sandbox.Spec{Name: "grace"})
	p, err := sb.Start(t.Context(), sandbox.Command{
		Argv:       []string{"sh", "-c", `trap 'sleep 0.1; echo saved >file; exit' TERM; echo ready; while :; do sleep 0.01; done`},
		Background: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() {
		_, err := p.Wait(t.Context(), w, nil)
		_ = w.CloseWithError(err)
	}()
	if _, err := io.ReadFull(r, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sb.Stop(t.Context()), sb.Resume(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, sb, "cat file"); got != "saved\n" {
		t.Errorf("%q", got)
	}
}
