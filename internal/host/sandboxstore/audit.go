package sandboxstore

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// auditFile has what was done to sandboxes, a JSON line each, and auditFile+".1" what was before that.
	auditFile = "audit.jsonl"
	// maxAudit bounds each of the two, in bytes: some 10,000 commands.
	maxAudit = 2 << 20
	// maxLine bounds a line that is read, in bytes.
	maxLine = 64 << 10
)

// Values of Event.Event.
const (
	EventCreated        = "created"
	EventRecreated      = "recreated" // from its record
	EventStarted        = "started"   // again
	EventStopped        = "stopped"
	EventRemoved        = "removed"
	EventExecuted       = "executed"
	EventNetworkChanged = "network_changed"
	EventSnapshot       = "snapshot"
	EventRestored       = "restored"
	EventForked         = "forked"
)

// oldEvents are the values of older versions that differ.
var oldEvents = map[string]string{"renewed": EventRecreated, "network": EventNetworkChanged}

// Event is one line. It has neither arguments nor variables of commands: these may be secret.
type Event struct {
	At      time.Time `json:"at"`
	Sandbox string    `json:"sandbox"`
	Event   string    `json:"event"`
	// Program, Code, Millis and Background are of a command; that of the background has no end yet.
	Program    string `json:"program,omitempty"`
	Code       *int   `json:"exit_code,omitempty"`
	Millis     int64  `json:"ms,omitempty"`
	Background bool   `json:"background,omitempty"`
	// Detail is the image, the network or the snapshot.
	Detail string `json:"detail,omitempty"`
}

// Bounds of what an event has, in bytes, so that a line is one that is read.
const (
	maxProgram = 200
	maxDetail  = 1000
)

// AppendEvent adds an event to the log, and truncates a log that is too long first.
func (s *Store) AppendEvent(e Event) error {
	e.Program, e.Detail = e.Program[:min(len(e.Program), maxProgram)], e.Detail[:min(len(e.Detail), maxDetail)]
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("note what was done to sandbox %s: %w", e.Sandbox, err)
	}
	path := filepath.Join(s.dir, auditFile)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("note what was done to sandbox %s: %w", e.Sandbox, err)
	}
	defer f.Close()
	// One write, so that lines of several processes are never mixed.
	_, err = f.Write(append(b, '\n'))
	if st, serr := f.Stat(); err == nil && serr == nil && st.Size() > maxAudit {
		err = rotate(f, path)
	}
	if err != nil {
		return fmt.Errorf("note what was done to sandbox %s: %w", e.Sandbox, err)
	}
	return nil
}

// rotate puts the file aside, unless another process just did.
func rotate(f *os.File, path string) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { // held for a rename
		return err
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(mine, there) {
		return nil
	}
	return os.Rename(path, path+".1")
}

// History is what was done to a sandbox, oldest first: also to one that is gone.
func (s *Store) History(name string) ([]Event, error) {
	all, err := s.HistoryOfAll()
	return slices.DeleteFunc(all, func(e Event) bool { return e.Sandbox != name }), err
}

// HistoryOfAll is what was done to all sandboxes, oldest first. Lines that are no events are left out.
func (s *Store) HistoryOfAll() ([]Event, error) {
	all := []Event{}
	for _, file := range []string{auditFile + ".1", auditFile} {
		f, err := os.Open(filepath.Join(s.dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read what was done to sandboxes: %w", err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			var e Event
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Event != "" {
				e.Event = cmp.Or(oldEvents[e.Event], e.Event)
				all = append(all, e)
			}
		}
		err = lines.Err()
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("read what was done to sandboxes: %w", err)
		}
	}
	return all, nil
}
