package launch_test

import (
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A process that holds a task and does not collect it, such as a stopped one, is not waited for without end.
func TestHolderThatHangs(t *testing.T) {
	t.Parallel()
	f := setup(t, happy)
	j := newJob()
	if _, err := f.Run(t.Context(), nil, j); err != nil {
		t.Fatal(err)
	}
	rec, _ := onDisk(t, f.Store, j.Order.TaskID)
	lock, err := f.Store.TryLock(rec.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	now := time.Now()
	f.Now = func() time.Time { now = now.Add(15 * time.Minute); return now }
	if res, err := f.Watch(t.Context(), rec); exiterr.Code(err) != workorder.ExitGeneral {
		t.Errorf("%+v, %v", res, err)
	}
}
