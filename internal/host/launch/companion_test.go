package launch

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// TestCompanionsID: the id of a companion that ended long ago may be another process's by now.
func TestCompanionsID(t *testing.T) {
	t.Parallel()
	stranger, err := proc.Start(t.Context(), proc.Spec{Argv: []string{"sleep", "600"}})
	if err != nil {
		t.Fatal(err)
	}
	was := statedir.ProcessOf(stranger.PID())
	was.Start += "1"
	rec := &taskstore.Record{TaskID: "T-AAAA0001", Companion: was}
	collector{}.endCompanion(t.Context(), rec)
	// It ends at the first signal.
	stranger.Signal(unix.SIGUSR1)
	if err, ok := errors.AsType[*proc.ExitError](stranger.Wait()); !ok || err.Signal != unix.SIGUSR1 {
		t.Errorf("a stranger was ended: %v", err)
	}

	own, err := proc.Start(t.Context(), proc.Spec{Argv: []string{"sleep", "600"}})
	if err != nil {
		t.Fatal(err)
	}
	rec.Companion = statedir.ProcessOf(own.PID())
	collector{}.endCompanion(t.Context(), rec)
	if err, ok := errors.AsType[*proc.ExitError](own.Wait()); !ok || err.Signal != unix.SIGTERM || rec.Companion != nil {
		t.Errorf("the companion was not ended: %v", err)
	}
}
