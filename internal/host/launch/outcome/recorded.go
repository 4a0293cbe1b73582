package outcome

import (
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/journal"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Recorded shows all of a collected run: the host's events, the box's, and at last the
// stored result.
func Recorded(rec *store.Record, show func(workorder.Event)) error {
	host, err := journal.Own(rec.Dir)
	if err != nil {
		return err
	}
	var last workorder.Event
	box, rest := journal.Among(host, func(e workorder.Event) {
		if e.Type == workorder.EventResult {
			last = e
			return
		}
		show(e)
	})
	if err := journal.Events(rec.Dir, box); err != nil {
		return err
	}
	rest()
	res, err := ReadResult(rec)
	switch {
	case err == nil:
		show(ending(last, rec, res))
	case last.Type != "":
		Judged(rec, show)(last)
	}
	return nil
}

// ending is the last event of a run: the box's own if it sent one, with the result as the
// host wrote it.
func ending(e workorder.Event, rec *store.Record, res *workorder.Result) workorder.Event {
	if e.Type == "" {
		e = workorder.Event{Time: rec.FinishedAt, Type: workorder.EventResult}
	}
	e.Result, e.Status = res, string(res.Status)
	return e
}
