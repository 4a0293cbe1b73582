// Package taskstore keeps the host's records of tasks: one directory per task in the state directory, with the run's
// output unless the user chose another directory. Every file is written atomically.
package taskstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	recordFile   = "task.json"
	lockFile     = "lock"
	stopFile     = "stop"
	companionLog = "companion.log" // written by the companion
)

// syncDir is a variable for tests.
var syncDir = statedir.SyncDir

// Store is a state directory.
type Store struct{ dir string }

// Record describes a task. The fields of a run describe the last attempt.
type Record struct {
	TaskID       string    `json:"task_id"`
	Project      string    `json:"project"`
	Task         string    `json:"task"` // shortened
	CreatedAt    time.Time `json:"created_at"`
	AttemptID    string    `json:"attempt_id,omitempty"`
	Attempt      int       `json:"attempt,omitempty"` // from 1
	StartedAt    time.Time `json:"started_at,omitzero"`
	PastAttempts []Attempt `json:"former,omitempty"` // oldest first
	Moving       int       `json:"moving,omitempty"` // the attempt whose output NextAttempt is moving, or 0
	Request      Request   `json:"request"`
	Dir          string    `json:"dir"`                 // the last attempt's output; earlier ones are in AttemptsDir
	Box          string    `json:"box,omitempty"`       // the container's name; empty until it is about to be created
	Engine       string    `json:"engine,omitempty"`    // address
	EngineID     string    `json:"engine_id,omitempty"` // empty if unknown
	// MayStillRun reports that a box may live after the attempt: the engine became unavailable while the box started.
	MayStillRun  bool               `json:"unsure,omitempty"`
	Keep         bool               `json:"keep,omitempty"`
	Deadline     time.Time          `json:"deadline,omitzero"`    // when the run's own timeout ends it
	LocalRepo    string             `json:"local_repo,omitempty"` // the repository on this machine that the run works for
	TargetBranch string             `json:"target_branch,omitempty"`
	Collected    bool               `json:"collected"` // the output is complete and the box is gone
	Status       workorder.Status   `json:"status,omitempty"`
	EndedBy      workorder.EndedBy  `json:"ended_by,omitempty"`
	FinishedAt   time.Time          `json:"finished_at,omitzero"`
	ResumeAt     *time.Time         `json:"resume_at,omitempty"` // when a parked task can continue; nil if unknown
	Companion    *statedir.Process  `json:"companion,omitempty"`
	Host         workorder.Platform `json:"host"`
	Image        workorder.Image    `json:"image"`
	Harness      string             `json:"harness,omitempty"`
	Mode         workorder.Mode     `json:"mode,omitempty"`
	Repo         string             `json:"repo,omitempty"`
	Branch       string             `json:"branch,omitempty"`
	Reasons      workorder.Reasons  `json:"reasons,omitempty"`
	Steps        []workorder.Step   `json:"steps,omitempty"` // the host's steps before the box's first one
	Limits       workorder.Limits   `json:"limits"`
}

// ErrNotFound is returned for a task without a record in the state directory.
var ErrNotFound = errors.New("task not found")

// DamagedError is returned for a task whose record cannot be read.
type DamagedError struct {
	TaskID string
	Path   string // of the record
	Err    error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("the record of task %s is damaged: %s: %v", e.TaskID, e.Path, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// AmbiguousError is returned for a prefix that several tasks share.
type AmbiguousError struct {
	Prefix string
	IDs    []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("task %s is not unique: %s", e.Prefix, strings.Join(e.IDs, ", "))
}

// New returns the store in dir, which the first write creates.
func New(dir string) *Store { return &Store{dir: dir} }

// Dir is the state directory.
func (s *Store) Dir() string { return s.dir }

// TaskDir is the task's directory in the state directory.
func (s *Store) TaskDir(id string) string { return filepath.Join(s.dir, id) }

// Owner returns the owner of the state directory's boxes: see statedir.OwnerOf.
func (s *Store) Owner(first bool) (statedir.Owner, error) { return statedir.OwnerOf(s.dir, first) }

// ErrExists is returned for a task id that is taken.
var ErrExists = errors.New("the task exists already")

// Create creates the task's directory and first record and returns the task's lock. After an error nothing is left. It
// takes over a directory without a record, whose creator died, and returns ErrExists for an existing task.
func (s *Store) Create(r *Record) (made *Lock, err error) {
	if err := statedir.Make(s.dir); err != nil {
		return nil, err
	}
	taken := fmt.Errorf("task %s: %w", r.TaskID, ErrExists)
	if err := os.Mkdir(s.TaskDir(r.TaskID), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make task directory: %w", err)
	}
	lock, err := s.TryLock(r.TaskID)
	if errors.Is(err, ErrLocked) {
		return nil, taken // another process may own it: remove nothing
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.Load(r.TaskID); !errors.Is(err, ErrNotFound) {
		lock.Unlock()
		if _, damaged := errors.AsType[*DamagedError](err); damaged {
			return nil, err
		}
		return nil, taken
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(s.TaskDir(r.TaskID)) // if writing fails, removing may fail, too
			lock.Unlock()
		}
	}()
	if r.Dir == "" {
		r.Dir = s.TaskDir(r.TaskID)
	} else if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make output directory: %w", err)
	}
	if err := s.Save(r); err != nil {
		return nil, err
	}
	for _, made := range []string{s.TaskDir(r.TaskID), r.Dir} {
		if err := syncDir(filepath.Dir(made)); err != nil {
			return nil, err
		}
	}
	return lock, nil
}

// Save writes the record.
func (s *Store) Save(r *Record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write task record: %w", err)
	}
	return statedir.WriteFile(filepath.Join(s.TaskDir(r.TaskID), recordFile), append(b, '\n'), 0o600)
}

// Load reads the record of a task.
func (s *Store) Load(id string) (*Record, error) {
	path := filepath.Join(s.TaskDir(id), recordFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if err != nil {
		return nil, fmt.Errorf("read task record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, &DamagedError{id, path, err}
	}
	if r.TaskID != id {
		return nil, &DamagedError{id, path, fmt.Errorf("it belongs to task %q", r.TaskID)}
	}
	return &r, nil
}

// List returns all tasks, newest first. The error names the records that cannot be read; the other tasks are returned.
func (s *Store) List() ([]*Record, error) {
	ids, err := statedir.TaskIDs(s.dir)
	if err != nil {
		return nil, err
	}
	var (
		list []*Record
		errs []error
	)
	for _, id := range ids {
		r, err := s.Load(id)
		switch {
		case errors.Is(err, ErrNotFound):
			// The task is being created or removed, or this is a directory of --out.
		case err != nil:
			errs = append(errs, err)
		default:
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *Record) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return list, errors.Join(errs...)
}

// Find returns the task with this id or unique prefix, with or without "T-", in any letter case.
func (s *Store) Find(prefix string) (*Record, error) {
	p := strings.ToUpper(strings.TrimSpace(prefix))
	if !strings.HasPrefix(p, "T-") {
		p = "T-" + p
	}
	if workorder.ValidTaskID(p) {
		return s.Load(p)
	}
	ids, err := statedir.TaskIDs(s.dir)
	if err != nil {
		return nil, err
	}
	var hit *Record
	var hitErr error // of a task whose record cannot be read
	e := &AmbiguousError{Prefix: prefix}
	for _, id := range ids {
		if len(p) <= len("T-") || !strings.HasPrefix(id, p) {
			continue
		}
		if r, err := s.Load(id); !errors.Is(err, ErrNotFound) {
			hit, hitErr = r, err
			e.IDs = append(e.IDs, id)
		}
	}
	switch len(e.IDs) {
	case 0:
		return nil, fmt.Errorf("%w: %s", ErrNotFound, prefix)
	case 1:
		return hit, hitErr
	}
	return nil, e
}

// Remove deletes the task's directory and, if the output is elsewhere, the run's directory there.
func (s *Store) Remove(r *Record) error {
	var errs []error
	if r.Dir != "" && r.Dir != s.TaskDir(r.TaskID) && filepath.Base(r.Dir) == r.TaskID {
		errs = append(errs, os.RemoveAll(r.Dir))
	}
	errs = append(errs, os.RemoveAll(s.TaskDir(r.TaskID)))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove task %s: %w", r.TaskID, err)
	}
	return nil
}

// Lock is the right to collect a task. The kernel releases it when its holder dies.
type Lock struct{ f *flock.Flock }

// ErrLocked is returned while another process collects the task.
var ErrLocked = errors.New("another process follows this task")

const (
	lockTries = 5
	lockPause = 20 * time.Millisecond
)

// LockPath is the file that the lock's holder has open.
func (s *Store) LockPath(id string) string { return filepath.Join(s.TaskDir(id), lockFile) }

// TryLock takes the task's lock or returns ErrLocked. It waits for Locked, which takes the lock for a moment.
func (s *Store) TryLock(id string) (l *Lock, err error) {
	for range lockTries {
		if l, err = s.lock(id); !errors.Is(err, ErrLocked) {
			break
		}
		time.Sleep(lockPause)
	}
	return l, err
}

func (s *Store) lock(id string) (*Lock, error) {
	f := flock.New(s.LockPath(id), flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))
	locked, err := f.TryLock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	case err != nil:
		return nil, fmt.Errorf("lock task %s: %w", id, err)
	case !locked:
		return nil, fmt.Errorf("task %s: %w", id, ErrLocked)
	}
	return &Lock{f: f}, nil
}

// Locked reports whether a process follows or collects the task.
func (s *Store) Locked(id string) bool {
	l, err := s.lock(id)
	if err != nil {
		return errors.Is(err, ErrLocked)
	}
	l.Unlock()
	return false
}

// Stop is a request to end a run that another process may follow.
type Stop string

// Kinds of stops.
const (
	StopSoft Stop = "soft" // the agent ends its turn
	StopKill Stop = "kill" // at once
)

// RequestStop saves a request to end the task. The request is no part of the record, which only the lock's holder writes.
func (s *Store) RequestStop(id string, kind Stop) error {
	return statedir.WriteFile(filepath.Join(s.TaskDir(id), stopFile), []byte(kind), 0o600)
}

// StopRequest returns the saved request, or "".
func (s *Store) StopRequest(id string) Stop {
	b, _ := os.ReadFile(filepath.Join(s.TaskDir(id), stopFile)) // an unreadable one counts as none
	return Stop(b)
}

// Unlock unlocks before it closes the file, because a child that was just forked has the file open until its exec.
func (l *Lock) Unlock() { _ = l.f.Unlock() }
