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
	auditFile = "audit.jsonl" // one JSON event per line; older events are in auditFile+".1"
	maxAudit  = 2 << 20       // bytes of each file: about 10,000 commands
	maxLine   = 64 << 10      // bytes
)

// Values of Event.Event.
const (
	EventCreated        = "created"
	EventRecreated      = "recreated" // from its record
	EventStarted        = "started"   // after a stop
	EventStopped        = "stopped"
	EventRemoved        = "removed"
	EventExecuted       = "executed"
	EventNetworkChanged = "network_changed"
	EventSnapshot       = "snapshot"
	EventRestored       = "restored"
	EventForked         = "forked"
	EventEnded          = "ended"          // without a command: by its own clock, or from outside
	EventFailed         = "failed"         // a creation or a start
	EventRestarted      = "restarted"      // by a monitor
	EventHealthChanged  = "health_changed" // as a monitor saw it
)

// oldEvents are the values of older versions that differ.
var oldEvents = map[string]string{"renewed": EventRecreated, "network": EventNetworkChanged}

// Event is one line. It has no arguments and variables of commands, which may be secret.
type Event struct {
	At         time.Time `json:"at"`
	Sandbox    string    `json:"sandbox"`
	Event      string    `json:"event"`
	Program    string    `json:"program,omitempty"`   // this and the next three are of a command
	Code       *int      `json:"exit_code,omitempty"` // nil for a command in the background
	Millis     int64     `json:"ms,omitempty"`
	Background bool      `json:"background,omitempty"`
	Detail     string    `json:"detail,omitempty"` // the image, the network, the snapshot, or the reason
}

// Runs reports whether the sandbox runs after the event.
func (e Event) Runs() bool {
	return slices.Contains([]string{EventCreated, EventRecreated, EventStarted, EventRestarted, EventRestored, EventForked}, e.Event)
}

// Ends reports whether the sandbox does not run after the event.
func (e Event) Ends() bool {
	return slices.Contains([]string{EventStopped, EventEnded, EventRemoved}, e.Event)
}

// Bounds of an event's values, in bytes, so that a line is shorter than maxLine.
const (
	maxProgram = 200
	maxDetail  = 1000
)

// AppendEvent appends an event to the audit log. A file that is too long becomes the older one.
func (s *Store) AppendEvent(e Event) error {
	e.Program, e.Detail = e.Program[:min(len(e.Program), maxProgram)], e.Detail[:min(len(e.Detail), maxDetail)]
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("write the audit log for sandbox %s: %w", e.Sandbox, err)
	}
	path := filepath.Join(s.dir, auditFile)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("write the audit log for sandbox %s: %w", e.Sandbox, err)
	}
	defer f.Close()
	// One write, so that lines of several processes do not mix.
	_, err = f.Write(append(b, '\n'))
	if st, serr := f.Stat(); err == nil && serr == nil && st.Size() > maxAudit {
		err = rotate(f, path)
	}
	if err != nil {
		return fmt.Errorf("write the audit log for sandbox %s: %w", e.Sandbox, err)
	}
	return nil
}

// rotate renames the full file, unless another process just did.
func rotate(f *os.File, path string) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { // closing the file releases it
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

// History returns the events of a sandbox, which may be gone, oldest first.
func (s *Store) History(name string) ([]Event, error) {
	all, err := s.HistoryOfAll()
	return slices.DeleteFunc(all, func(e Event) bool { return e.Sandbox != name }), err
}

// HistoryOfAll returns the events of all sandboxes, oldest first. It skips damaged lines.
func (s *Store) HistoryOfAll() ([]Event, error) {
	all := []Event{}
	for _, file := range []string{auditFile + ".1", auditFile} {
		f, err := os.Open(filepath.Join(s.dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
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
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
	}
	return all, nil
}
