package proof_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/runner/proof"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Checks that ran on base in an earlier proof are not run there again, but for those that differ on head; of
// other checks, or of another commit, nothing counts.
func TestKnownBase(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"f": "1\n"})
	runs := filepath.Join(t.TempDir(), "runs")
	b.Order.Validate = []workorder.Check{
		{Name: "same", Run: "echo same >>" + runs + "; echo of the check"}, {Name: "differs", Run: "echo differs >>" + runs + "; grep -q 2 f"},
	}
	count := func() string {
		t.Helper()
		got, err := os.ReadFile(runs)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(runs); err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	head := b.commit(map[string]string{"f": "2\n"})
	rooms := &places{home: b.Home}
	var known *proof.BaseRuns
	b.Rooms = rooms
	b.KeepBase = func(_ context.Context, k *proof.BaseRuns) error {
		rooms.steps = append(rooms.steps, "keep")
		known = k
		return nil
	}
	b.prove(t.Context(), head)
	if want := []string{"room", "enter", "keep", "leave", "room", "enter", "leave", "room", "enter", "leave"}; !slices.Equal(rooms.steps, want) {
		t.Errorf("%q", rooms.steps)
	}
	if known == nil || len(known.Checks) != 2 || !known.Checks[0].Result.Passed || known.Checks[1].Result.Passed || string(known.Checks[0].Log) != "of the check\n" {
		t.Fatalf("%+v", known)
	}
	count()
	b.KeepBase = nil
	known.Made = known.Made.Add(time.Hour - proof.MaxBaseRunAge) // an earlier box's
	b.BaseRuns = known
	if err := os.RemoveAll(filepath.Join(b.OutDir, workorder.LogsDir)); err != nil { // another box's
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(b.OutDir, workorder.LogsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	got := b.prove(t.Context(), head)
	if len(got.Reasons) > 0 || got.Checks[0].Transition != workorder.TransitionStillPasses || got.Checks[1].Transition != workorder.TransitionFixed {
		t.Errorf("%+v", got)
	}
	// Head, what differs on base, and on head once more.
	if got := count(); got != "same\ndiffers\ndiffers\ndiffers\n" {
		t.Errorf("with a known base: %q", got)
	}
	if log, err := os.ReadFile(filepath.Join(b.OutDir, got.Checks[0].Base.Log)); err != nil || string(log) != "of the check\n" {
		t.Errorf("%q, %v", log, err)
	}
	for name, change := range map[string]func(*proof.BaseRuns){
		"another commit": func(k *proof.BaseRuns) { k.Commit = head },
		"another check":  func(k *proof.BaseRuns) { k.Checks[0].Run = "true" },
		"a check less":   func(k *proof.BaseRuns) { k.Checks = k.Checks[:1] },
		// A check that failed without a network is not base's failure with one.
		"another network": func(k *proof.BaseRuns) { k.Bounds.Network.Mode = workorder.NetworkNone },
		"a rule more":     func(k *proof.BaseRuns) { k.Bounds.Network.Allow = []string{"example.org"} },
		"other limits":    func(k *proof.BaseRuns) { k.Bounds.Limits.MemoryBytes = 1 << 30 },
		"another secret":  func(k *proof.BaseRuns) { k.Bounds.Secrets = []string{"TOKEN"} },
		// A test may fail from some day on.
		"an old one":           func(k *proof.BaseRuns) { k.Made = time.Now().Add(-proof.MaxBaseRunAge) },
		"one without a time":   func(k *proof.BaseRuns) { k.Made = time.Time{} },
		"one of a later clock": func(k *proof.BaseRuns) { k.Made = time.Now().Add(time.Hour) },
	} {
		other := *known
		other.Checks = append([]proof.BaseRun{}, known.Checks...)
		change(&other)
		b.BaseRuns = &other
		b.prove(t.Context(), head)
		if got := count(); got != "same\ndiffers\nsame\ndiffers\ndiffers\ndiffers\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
