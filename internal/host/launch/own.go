package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ownEvents is the record of what the host did and saw itself. It is not part of
// the box's record, whose numbers have no gaps and which the box's own copy is merged into.
const ownEvents = "host-events.jsonl"

// noting is the launcher with its own events recorded: they are all that tells
// later what happened to a run that never had a box.
func (l *Launcher) noting(rec *store.Record) *Launcher {
	c := *l
	c.Show = func(e workorder.Event) {
		if e.Seq == 0 {
			if e.Time.IsZero() {
				e.Time = l.now()
			}
			if err := note(rec.Dir, e); err != nil {
				l.Log.Debug("record an event of the host", "task", rec.TaskID, "error", err)
			}
		}
		l.show(e)
	}
	return &c
}

func note(dir string, e workorder.Event) error {
	if e.Type == workorder.EventResult {
		e.Result = nil // it lies beside, in result.json
	}
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, ownEvents), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(render.EscapeControls(b), '\n'))
	return errors.Join(err, f.Close())
}

// own reads the host's own events.
func own(dir string) (list []workorder.Event, err error) {
	f, err := os.Open(filepath.Join(dir, ownEvents))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of the host: %w", err)
	}
	defer f.Close()
	if _, err := readEvents(f, func(e workorder.Event) { list = append(list, e) }); err != nil {
		return nil, fmt.Errorf("read the record of the host: %w", err)
	}
	return list, nil
}

// among shows the host's own events where they belong between those of the box.
// What is left is shown by rest.
func among(host []workorder.Event, show func(workorder.Event)) (box func(workorder.Event), rest func()) {
	box = func(e workorder.Event) {
		for len(host) > 0 && !host[0].Time.After(e.Time) {
			show(host[0])
			host = host[1:]
		}
		show(e)
	}
	return box, func() {
		for _, e := range host {
			show(e)
		}
	}
}

// Recorded shows all of a collected run: the host's events, the box's, and last
// the result as it was written.
func Recorded(rec *store.Record, show func(workorder.Event)) error {
	host, err := own(rec.Dir)
	if err != nil {
		return err
	}
	var last workorder.Event
	box, rest := among(host, func(e workorder.Event) {
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
		Judged(rec, show)(last)
	}
	return nil
}

// ending is the last event of a run: the box's own one when it gave any, with
// the result as the host wrote it.
func ending(e workorder.Event, rec *store.Record, res *workorder.Result) workorder.Event {
	if e.Type == "" {
		e = workorder.Event{Time: rec.FinishedAt, Type: workorder.EventResult}
	}
	e.Result, e.Status = res, string(res.Status)
	return e
}
