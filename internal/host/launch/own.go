package launch

import (
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/journal"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// noting returns the launcher with recording of its own events: they are the only record
// of a run that never had a box.
func (l *Launcher) noting(rec *store.Record) *Launcher {
	c := *l
	c.Show = func(e workorder.Event) {
		if e.Seq == 0 {
			if e.Time.IsZero() {
				e.Time = l.Host().Time()
			}
			if err := journal.Note(rec.Dir, e); err != nil {
				l.Log.Debug("record an event of the host", "task", rec.TaskID, "error", err)
			}
		}
		l.Host().Emit(e)
	}
	return &c
}
