package outcome

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ResultBuffer holds back a run's last event until the result is complete: the box's result lacks what only the host knows.
type ResultBuffer struct {
	Show func(workorder.Event)
	last workorder.Event
}

// Event shows an event, or keeps the last one.
func (h *ResultBuffer) Event(e workorder.Event) {
	if e.Type == workorder.EventResult {
		h.last = e
		return
	}
	h.Show(e)
}

// Release shows the last event with the stored result, or with the box's own if none could be stored.
func (h *ResultBuffer) Release(show func(workorder.Event), now func() time.Time, rec *taskstore.Record, res *workorder.Result) {
	switch {
	case res != nil:
		e := ending(h.last, rec, res)
		if e.Time.IsZero() {
			e.Time = now()
		}
		show(e)
	case h.last.Type != "":
		h.Show(h.last)
	}
}

// LostEnding is the ending of a run without a result.
func LostEnding(code workorder.ReasonCode, detail string) workorder.Ending {
	return workorder.Ending{Status: workorder.StatusLost, EndedBy: workorder.EndedByHost, Reasons: workorder.Because(code, "%s", detail)}
}

// WriteResult writes the result of an attempt.
func WriteResult(rec *taskstore.Record, res *workorder.Result) error {
	b, err := res.Encode()
	if err != nil {
		return err
	}
	return statedir.WriteFile(filepath.Join(rec.Dir, workorder.ResultFile), text.EscapeControls(b), 0o600)
}

// Amend changes the stored result of a collected task.
func Amend(rec *taskstore.Record, change func(*workorder.Result)) error {
	r, err := ReadResult(rec)
	if err != nil {
		return err
	}
	change(r)
	return WriteResult(rec, r)
}

// ReadResult reads the result of a collected task.
func ReadResult(rec *taskstore.Record) (*workorder.Result, error) {
	b, err := os.ReadFile(filepath.Join(rec.Dir, workorder.ResultFile))
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	return workorder.DecodeResult(b)
}

// Recorded shows a collected run: the host's events, the box's, and the stored result last.
func Recorded(rec *taskstore.Record, show func(workorder.Event)) error {
	host, err := HostEvents(rec.Dir)
	if err != nil {
		return err
	}
	var last workorder.Event
	box, rest := Interleave(host, func(e workorder.Event) {
		if e.Type == workorder.EventResult {
			last = e
			return
		}
		show(e)
	})
	if err := Events(rec.Dir, box); err != nil {
		return err
	}
	rest()
	res, err := ReadResult(rec)
	switch {
	case err == nil:
		show(ending(last, rec, res))
	case last.Type != "":
		SanitizeEvents(rec, show)(last)
	}
	return nil
}

// ending returns the last event of a run, with the result as the host wrote it.
func ending(e workorder.Event, rec *taskstore.Record, res *workorder.Result) workorder.Event {
	if e.Type == "" {
		e = workorder.Event{Time: rec.FinishedAt, Type: workorder.EventResult}
	}
	e.Result, e.Status = res, string(res.Status)
	return e
}
