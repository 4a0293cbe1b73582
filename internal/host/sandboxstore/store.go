// Package sandboxstore stores records of standalone sandboxes, from which they are recreated, and their history. What the
// runtime has of a sandbox is authoritative.
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
	// Folder is the registry's in a state folder. That of a sandbox is named after it; its port forwarder has files of its own in it.
	Folder     = "registry"
	recordFile = "record.json"
	// creationFile is there while a sandbox is made.
	creationFile = "creation.json"
	lockFile     = "lock"
)

// Store has the records and the audit log of standalone sandboxes, in a state directory.
type Store struct{ dir string }

// New returns that of a state folder. It makes nothing.
func New(stateDir string) *Store { return &Store{filepath.Join(stateDir, Folder)} }

// Record is what is kept of a sandbox.
type Record struct {
	Runtime string `json:"runtime"`
	// Engine is the identity of the engine that has it, and Host is where that was; empty for runtimes without an engine.
	Engine string `json:"engine,omitempty"`
	Host   string `json:"host,omitempty"`
	// Spec is what it was made of.
	Spec    json.RawMessage `json:"spec"`
	Created time.Time       `json:"created"`
}

// Dir is the folder of a sandbox, whether it is there or not.
func (s *Store) Dir(name string) string { return filepath.Join(s.dir, name) }

// Save writes a sandbox's record.
func (s *Store) Save(name string, rec Record) error {
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir(name), 0o700); err != nil {
		return fmt.Errorf("keep what sandbox %s was made of: %w", name, err)
	}
	path := filepath.Join(s.Dir(name), recordFile)
	if st, err := os.Lstat(path); err == nil && st.IsDir() { // a damaged one
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("keep what sandbox %s was made of: %w", name, err)
		}
	}
	return statedir.WriteFile(path, append(b, '\n'), 0o600)
}

// Load reads a sandbox's record; the error is fs.ErrNotExist where there is none.
func (s *Store) Load(name string) (rec Record, err error) {
	path := filepath.Join(s.Dir(name), recordFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, fmt.Errorf("the record of sandbox %s is damaged: %s: %w", name, path, err)
	}
	return rec, nil
}

// Creation is what a command does that makes or recreates a sandbox. It is kept until the sandbox is complete: where
// that command was killed, another one completes it.
type Creation struct {
	Record
	// New reports that the sandbox did not exist before; then its worktree, if any, has no owner either.
	New bool `json:"new,omitempty"`
	// Snapshot is the image that the sandbox is made of in place of its spec's.
	Snapshot string `json:"snapshot,omitempty"`
	// Restore brings back what was saved of the sandbox before.
	Restore bool `json:"restore,omitempty"`
	// Event and Detail are what is noted of the complete sandbox.
	Event  string `json:"event"`
	Detail string `json:"detail,omitempty"`
}

// Begin writes that a sandbox is being made, in place of an earlier Creation.
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

// Begun returns what Begin wrote, and whether there is anything; a damaged file is an empty Creation.
func (s *Store) Begun(name string) (c Creation, begun bool) {
	b, err := os.ReadFile(filepath.Join(s.Dir(name), creationFile))
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

// Names are the folders of sandboxes, with or without a record.
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

// Remove removes a sandbox's record, and its Creation.
func (s *Store) Remove(name string) error {
	// Also a folder in its place.
	if err := errors.Join(s.Complete(name), os.RemoveAll(filepath.Join(s.Dir(name), recordFile))); err != nil {
		return fmt.Errorf("forget sandbox %s: %w", name, err)
	}
	s.tidy(name)
	return nil
}

// tidy removes a folder without files.
func (s *Store) tidy(name string) { _ = os.Remove(s.Dir(name)) } // one that has some stays

// Lock keeps other commands from making or removing the sandbox until unlock is called, and waits for those that do until ctx ends.
func (s *Store) Lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		if err := os.MkdirAll(s.Dir(name), 0o700); err != nil {
			return nil, fmt.Errorf("lock sandbox %s: %w", name, err)
		}
		l, err := lockfile.Take(ctx, filepath.Join(s.Dir(name), lockFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the folder was removed with the sandbox meanwhile
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
