// Package sandboxstore stores records of standalone sandboxes, from which they are recreated, and their audit log. The
// runtime stays authoritative for a sandbox's state.
package sandboxstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
)

const (
	// Dir is the store's directory in a state directory. It has a directory per sandbox, which its port forwarder uses, too.
	Dir          = "registry"
	recordFile   = "record.json"
	creationFile = "creation.json" // exists while the sandbox is created
	lockFile     = "lock"
)

// Store has the records and the audit log of standalone sandboxes.
type Store struct{ dir string }

// New returns the store of a state directory, and creates nothing.
func New(stateDir string) *Store { return &Store{filepath.Join(stateDir, Dir)} }

// Record describes a sandbox.
type Record struct {
	Runtime string          `json:"runtime"`
	Engine  string          `json:"engine,omitempty"` // the engine's identity; "" without an engine
	Host    string          `json:"host,omitempty"`   // the engine's address
	Spec    json.RawMessage `json:"spec"`             // what the sandbox was created from
	Created time.Time       `json:"created"`
}

// Dir is the directory of a sandbox, which need not exist.
func (s *Store) Dir(name string) string { return filepath.Join(s.dir, name) }

// Save writes a sandbox's record.
func (s *Store) Save(name string, rec Record) error {
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir(name), 0o700); err != nil {
		return fmt.Errorf("save the record of sandbox %s: %w", name, err)
	}
	path := filepath.Join(s.Dir(name), recordFile)
	if st, err := os.Lstat(path); err == nil && st.IsDir() { // damaged
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("save the record of sandbox %s: %w", name, err)
		}
	}
	return statedir.WriteFile(path, append(b, '\n'), 0o600)
}

// Load reads a sandbox's record, or returns fs.ErrNotExist.
func (s *Store) Load(name string) (rec Record, err error) {
	path := filepath.Join(s.Dir(name), recordFile)
	b, err := statedir.ReadFile(path)
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, fmt.Errorf("the record of sandbox %s is damaged: %s: %w", name, path, err)
	}
	return rec, nil
}

// Creation describes a command that creates or recreates a sandbox. If that command is killed, the next one completes it.
type Creation struct {
	Record
	// New means that the sandbox did not exist before, so that its worktree has no owner.
	New      bool   `json:"new,omitempty"`
	Snapshot string `json:"snapshot,omitempty"` // the image to use instead of the spec's
	Restore  bool   `json:"restore,omitempty"`  // restore what was saved of the former sandbox
	// Event and Detail are the event of the complete sandbox.
	Event  string `json:"event"`
	Detail string `json:"detail,omitempty"`
}

// Begin records the start of a creation, and replaces an earlier one.
func (s *Store) Begin(name string, c Creation) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir(name), 0o700); err != nil {
		return fmt.Errorf("begin sandbox %s: %w", name, err)
	}
	return statedir.WriteFile(filepath.Join(s.Dir(name), creationFile), append(b, '\n'), 0o600)
}

// Begun returns what Begin wrote. A damaged file is an empty Creation.
func (s *Store) Begun(name string) (c Creation, begun bool) {
	b, err := statedir.ReadFile(filepath.Join(s.Dir(name), creationFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return c, false
	}
	if err != nil || json.Unmarshal(b, &c) != nil {
		return Creation{}, true
	}
	return c, true
}

// Complete removes what Begin wrote, durably: after a crash of the machine, a sandbox with work in it must not be recreated.
func (s *Store) Complete(name string) error {
	err := os.RemoveAll(filepath.Join(s.Dir(name), creationFile))
	if err == nil {
		err = statedir.SyncDir(s.Dir(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("complete sandbox %s: %w", name, err)
	}
	return nil
}

// Names returns the names of sandboxes with a directory, with or without a record.
func (s *Store) Names() (names []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Remove removes a sandbox's record and Creation.
func (s *Store) Remove(name string) error {
	if err := errors.Join(s.Complete(name), os.RemoveAll(filepath.Join(s.Dir(name), recordFile))); err != nil {
		return fmt.Errorf("remove the record of sandbox %s: %w", name, err)
	}
	s.tidy(name)
	return nil
}

func (s *Store) tidy(name string) { _ = os.Remove(s.Dir(name)) } // fails if it has files

// Lock excludes other commands that create or remove the sandbox until unlock. It waits for them until ctx ends.
func (s *Store) Lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		if err := os.MkdirAll(s.Dir(name), 0o700); err != nil {
			return nil, fmt.Errorf("lock sandbox %s: %w", name, err)
		}
		l, err := lockfile.Take(ctx, filepath.Join(s.Dir(name), lockFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the directory was removed with the sandbox
		}
		if err != nil {
			return nil, fmt.Errorf("lock sandbox %s: %w", name, err)
		}
		return func() {
			defer l.Release()
			if _, err := os.Stat(filepath.Join(s.Dir(name), recordFile)); errors.Is(err, fs.ErrNotExist) {
				l.Remove()
				s.tidy(name)
			}
		}, nil
	}
}
