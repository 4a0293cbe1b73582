package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// OwnEvents is the file of the host's own events. They are not in the box's record: its
// numbers have no gaps, and the box's own copy is merged into it.
const OwnEvents = "host-events.jsonl"

// Note records an event of the host.
func Note(dir string, e workorder.Event) error {
	if e.Type == workorder.EventResult {
		e.Result = nil // it is beside the record, in result.json
	}
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, OwnEvents), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text.EscapeControls(b), '\n'))
	return errors.Join(err, f.Close())
}

// Own reads the host's own events.
func Own(dir string) (list []workorder.Event, err error) {
	f, err := os.Open(filepath.Join(dir, OwnEvents))
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

// Among shows the host's own events at their places between those of the box. The
// function rest shows the remaining ones.
func Among(host []workorder.Event, show func(workorder.Event)) (box func(workorder.Event), rest func()) {
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
