package taskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// AttemptsDir is the directory in a task's output with the output of earlier attempts.
const AttemptsDir = "attempts"

// Attempt is the host's record of an attempt before the last one.
type Attempt struct {
	ID          string            `json:"id,omitempty"`
	Number      int               `json:"number"`
	Status      workorder.Status  `json:"status"`
	EndedBy     workorder.EndedBy `json:"ended_by"`
	Reasons     workorder.Reasons `json:"reasons,omitempty"` // see reasons.go
	FinishedAt  time.Time         `json:"finished_at,omitzero"`
	Box         string            `json:"box,omitempty"`
	Engine      string            `json:"engine,omitempty"`
	EngineID    string            `json:"engine_id,omitempty"`
	MayStillRun bool              `json:"unsure,omitempty"`
	Keep        bool              `json:"keep,omitempty"`
}

// Detected is the ProjectBy of a task whose project was detected from the repository's files.
const Detected = "detected"

// Request is what the user requested besides the task.
type Request struct {
	ProjectFile string            `json:"project_file,omitempty"` // absolute, or the name of a built-in project
	ProjectBy   string            `json:"project_by,omitempty"`   // Detected or a value of package resolve
	Overrides   map[string]string `json:"overrides,omitempty"`    // values that flags set instead of the project's
}

// Number is the number of the last attempt, from 1. Records of older versions lack it.
func (r *Record) Number() int { return max(r.Attempt, 1) }

// Begun is when the last attempt began.
func (r *Record) Begun() time.Time {
	if r.StartedAt.IsZero() {
		return r.CreatedAt
	}
	return r.StartedAt
}

// Resumable reports whether the task can continue without a change by the user.
func (r *Record) Resumable() bool { return r.Collected && r.Mode.Resumable(r.Status, r.EndedBy) }

// At returns the record as attempt number left it, or r if number is 0. The result must not be saved.
func (r *Record) At(number int) (*Record, error) {
	if number == 0 || number == r.Number() {
		return r, nil
	}
	i := slices.IndexFunc(r.PastAttempts, func(a Attempt) bool { return a.Number == number })
	if i < 0 {
		return nil, fmt.Errorf("%w: %s has no attempt %d", ErrNotFound, r.TaskID, number)
	}
	a, c := r.PastAttempts[i], *r
	c.AttemptID, c.Attempt, c.PastAttempts, c.Dir, c.Collected = a.ID, a.Number, r.PastAttempts[:i], r.attemptDir(a.Number), true
	c.Status, c.EndedBy, c.Reasons, c.FinishedAt, c.Box, c.Keep, c.ResumeAt = a.Status, a.EndedBy, a.Reasons, a.FinishedAt, a.Box, a.Keep, nil
	c.Engine, c.EngineID, c.MayStillRun = a.Engine, a.EngineID, a.MayStillRun
	return &c, nil
}

func (r *Record) attemptDir(number int) string {
	return filepath.Join(r.Dir, AttemptsDir, strconv.Itoa(number))
}

func (r *Record) as() Attempt {
	return Attempt{
		ID: r.AttemptID, Number: r.Number(), Status: r.Status, EndedBy: r.EndedBy, Reasons: r.Reasons, FinishedAt: r.FinishedAt,
		Box: r.Box, Engine: r.Engine, EngineID: r.EngineID, MayStillRun: r.MayStillRun, Keep: r.Keep,
	}
}

// Elsewhere reports whether the attempt's sandbox is on an engine other than the given one. It is false if the record
// names no engine, as those of older versions.
func (a Attempt) Elsewhere(engine string) bool {
	return a.Box != "" && a.EngineID != "" && engine != "" && a.EngineID != engine
}

// Elsewhere is Attempt.Elsewhere of the last attempt.
func (r *Record) Elsewhere(engine string) bool { return r.as().Elsewhere(engine) }

// stays are the files of a task's directory that belong to no attempt.
var stays = map[string]bool{
	recordFile: true, lockFile: true, stopFile: true, companionLog: true, AttemptsDir: true,
}

// NextAttempt moves the output of last, which must be collected, to the earlier attempts, and saves next as the
// following attempt. The caller holds the task's lock. If the process dies halfway, FinishMove moves the output back.
func (s *Store) NextAttempt(last, next *Record) error {
	next.Attempt = max(next.Attempt, last.Number()+1)
	next.PastAttempts = append(append([]Attempt{}, last.PastAttempts...), last.as())
	next.CreatedAt, next.Dir, next.Moving = last.CreatedAt, last.Dir, 0
	journal := *last
	journal.Moving = last.Number()
	if err := s.Save(&journal); err != nil {
		return err
	}
	err := moveAll(last.Dir, last.attemptDir(journal.Moving))
	if err == nil {
		// An older stop was for the attempt that is over.
		if err = os.Remove(filepath.Join(s.TaskDir(last.TaskID), stopFile)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = s.Save(next)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("move the output of attempt %d away: %w", journal.Moving, err), s.FinishMove(&journal))
	}
	return nil
}

// FinishMove moves the last attempt's output back if a process died during NextAttempt. The caller holds the task's lock.
func (s *Store) FinishMove(r *Record) error {
	if r.Moving == 0 {
		return nil
	}
	if err := moveAll(r.attemptDir(r.Moving), r.Dir); err != nil {
		return fmt.Errorf("bring the output of attempt %d back: %w", r.Moving, err)
	}
	r.Moving = 0
	return s.Save(r)
}

// moveAll renames an attempt's files from one directory into another of the same file system. It can be repeated or
// reversed after any interruption.
func moveAll(from, to string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err = nil, nil // nothing was moved yet, or the user deleted the directory
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if stays[e.Name()] {
			continue
		}
		if err := os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(to), syncDir(from), syncDir(filepath.Dir(to)))
}

// Attempts returns all attempts, oldest first.
func (r *Record) Attempts() []Attempt { return append(append([]Attempt{}, r.PastAttempts...), r.as()) }

// Knows reports whether the record has the attempt.
func (r *Record) Knows(attemptID string) bool {
	return slices.ContainsFunc(r.Attempts(), func(a Attempt) bool { return a.ID == attemptID })
}
