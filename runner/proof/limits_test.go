package proof_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/runner/proof"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestTimeRunsOut: a command that has no end costs its own result and no more than that.
func TestTimeRunsOut(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	b.validate("quick", "true", "endless", "sleep 1000", "after", "true")
	head := b.commit(map[string]string{"b": "1\n"})
	// Commands take their part of the time that is left; the test waits for the whole of it.
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	p := b.prove(ctx, head)
	if p.Checks[0].Head == nil || !p.Checks[0].Head.Passed || p.Checks[1].Head != nil || p.Checks[2].Head == nil {
		t.Errorf("%+v", p)
	}
	if !p.Reasons.Has(workorder.ReasonCheck) || p.Checks[2].Base == nil {
		t.Error(p.Reasons)
	}
	if len(p.TestFindings) != 1 || p.TestFindings[0].Kind != workorder.FindingNothingProven {
		t.Errorf("%+v", p.TestFindings)
	}
}

// TestHeadDecides: if the time is not enough for both sides, base is not run.
func TestHeadDecides(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	b.validate("test", "true")
	b.Took = proof.Limit
	p := b.prove(t.Context(), b.commit(map[string]string{"b": "1\n"}))
	if p.Checks[0].Head == nil || p.Checks[0].Base != nil || !p.Reasons.Has(workorder.ReasonNoTime) {
		t.Errorf("%+v", p)
	}
}

// TestTooSlow: a command that takes longer than any may has failed.
func TestTooSlow(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	b.validate("test", "test ! -e b || sleep 1000")
	b.Config = b.Bounded(3 * time.Second) // what takes no time at all has to come through it, on any machine
	p := b.prove(t.Context(), b.commit(map[string]string{"b": "1\n"}))
	if c := p.Checks[0]; c.Head == nil || c.Head.ExitCode != 124 || c.Transition != workorder.TransitionBroken || len(p.Reasons) != 0 {
		t.Errorf("%+v", p)
	}
}

// TestStopped: a stop from outside ends the proof in order, with what is known.
func TestStopped(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	b.validate("quick", "true", "endless", "sleep 1000")
	head := b.commit(map[string]string{"b": "1\n"})
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	b.Shell = func(ctx context.Context, c proof.CommandLine) proof.Outcome {
		if strings.HasPrefix(c.Run, "sleep") {
			stop(errors.New("stopped from outside"))
		}
		return b.shell(ctx, c)
	}
	p := b.prove(ctx, head)
	if p.Checks[0].Base == nil || p.Checks[1].Base != nil || !p.Reasons.Has(workorder.ReasonCheck) {
		t.Errorf("%+v", p)
	}
}

func TestNoTimeAtAll(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	b.validate("test", "true")
	head := b.commit(map[string]string{"b": "1\n"})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if p := b.prove(ctx, head); len(p.Reasons) == 0 || len(p.Checks) != 1 || p.Checks[0].Head != nil {
		t.Errorf("%+v", p)
	}
}

// TestFilesOfOthers: what a container made in a checkout as root of its own is removed too, and a
// link in it is removed and not followed.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	b.validate("test", "mkdir -p deep/er && chmod 0 deep")
	head := b.commit(map[string]string{"b": "1\n"})
	b.asOther()
	keep := filepath.Join(filepath.Dir(b.Home), "keep")
	b.put(keep+"/file", "1\n")
	b.Shell = func(ctx context.Context, c proof.CommandLine) proof.Outcome {
		if b.User != nil {
			b.put(c.Dir+"/theirs/file", "1\n")
			if err := errors.Join(os.Symlink(keep, c.Dir+"/theirs/link"), os.Chmod(c.Dir+"/theirs", 0o700)); err != nil {
				t.Error(err)
			}
		}
		return b.shell(ctx, c)
	}
	if p := b.prove(t.Context(), head); p.Checks[0].Head == nil || !p.Checks[0].Head.Passed || p.Checks[0].Base == nil {
		t.Errorf("%+v", p)
	}
	if names := b.names(keep); len(names) != 1 || len(b.warnings()) > 0 {
		t.Errorf("%q, %q", names, b.warnings())
	}
}
