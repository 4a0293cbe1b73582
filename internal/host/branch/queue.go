package branch

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
)

// Saves of one sandbox wait in a queue, across processes. The process whose turn it is saves for all entries of the queue, since their
// commands have ended before it reads the files; the others read its result. So thirty commands at once take two saves.

const (
	queueDir = "sandbox-agent-queue" // in the bare repository, with a directory for each sandbox
	look     = 20 * time.Millisecond // the interval between two checks for a result
	stale    = time.Hour             // the age at which a result without a reader is removed
	maxBatch = 1000

	suffixOf = ".ran"
	doneOf   = ".saved"
)

type queue struct{ dir, own string }

type entry struct {
	CommandRecord

	Subject string `json:"subject,omitempty"`

	file string
}

// result is the outcome of a save for one command.
type result struct {
	SaveResult

	NotShown string // the text of an ErrNotPublished
}

func (r *result) err() error {
	if r.NotShown == "" {
		return nil
	}
	return &notShown{errors.New(r.NotShown)}
}

// wait adds a command to the queue.
func (b *Clone) wait(ran CommandRecord) (*queue, error) {
	q := &queue{dir: filepath.Join(b.dir, queueDir, b.Sandbox)}
	if err := os.MkdirAll(q.dir, 0o700); err != nil {
		return nil, err
	}
	q.own = filepath.Join(q.dir, fmt.Sprintf("%020d-%s", time.Now().UnixNano(), rand.Text()))
	return q, write(q.own+suffixOf, entry{CommandRecord: ran, Subject: ran.Subject})
}

// write creates a file that other processes see complete or not at all.
func write(file string, content any) error {
	raw, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, raw, 0o600)
}

// turn waits until another process has saved the command (done), or until it is this one's turn, which unlock ends.
func (q *queue) turn(ctx context.Context) (done *result, unlock func(), err error) {
	for {
		if done, err = q.result(); done != nil || err != nil {
			return done, nil, err
		}
		once, cancel := context.WithTimeout(ctx, look)
		l, err := lockfile.Take(once, filepath.Join(q.dir, "lock"))
		cancel()
		switch {
		case err == nil:
			if done, err = q.result(); done != nil || err != nil { // saved by the previous holder
				l.Release()
				return done, nil, err
			}
			return nil, l.Release, nil
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return nil, nil, err
		}
	}
}

// result returns the outcome that another process wrote for this command; nil if there is none.
func (q *queue) result() (*result, error) {
	raw, err := os.ReadFile(q.own + doneOf)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	s := &result{}
	if err == nil {
		err = json.Unmarshal(raw, s)
	}
	return s, errors.Join(err, os.Remove(q.own+doneOf))
}

// all returns the waiting commands in order of arrival, and removes stale results.
func (q *queue) all() (list []entry, err error) {
	files, err := os.ReadDir(q.dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		file := filepath.Join(q.dir, f.Name())
		if !strings.HasSuffix(file, suffixOf) {
			if st, err := f.Info(); err == nil && f.Name() != "lock" && time.Since(st.ModTime()) > stale {
				_ = os.Remove(file) // the next save tries again
			}
			continue
		}
		e := entry{file: file}
		raw, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(raw, &e)
		}
		if err != nil { // cut off by a full disk
			_ = os.Remove(file)
			continue
		}
		if e.CommandRecord.Subject = e.Subject; len(list) < maxBatch {
			list = append(list, e)
		}
	}
	return list, nil
}

// done writes the outcome for all entries except the own one, and removes the entries.
func (q *queue) done(list []entry, s SaveResult, shown error) error {
	r := result{SaveResult: s}
	if shown != nil {
		r.NotShown = shown.Error()
	}
	var errs []error
	for _, e := range list {
		if own := strings.TrimSuffix(e.file, suffixOf); own != q.own {
			errs = append(errs, write(own+doneOf, r))
		}
		errs = append(errs, os.Remove(e.file))
	}
	return errors.Join(errs...)
}

// leave removes an entry that has no command for a later save to record.
func (q *queue) leave(ran CommandRecord) {
	if ran.Command == "" {
		_ = os.Remove(q.own + suffixOf) // may be done already
	}
}

// forget removes the entries of commands that ran in a previous clone.
func (b *Branch) forget() {
	left, _ := filepath.Glob(filepath.Join(b.dir, queueDir, b.Sandbox, "*"+suffixOf)) // fails only for special characters in the path
	for _, file := range left {
		_ = os.Remove(file) // may be done already
	}
}

// commands returns the entries with a command, in order of their start.
func commands(list []entry) (all []CommandRecord) {
	for _, e := range list {
		if e.Command != "" {
			all = append(all, e.CommandRecord)
		}
	}
	slices.SortStableFunc(all, func(a, b CommandRecord) int { return a.Started.Compare(b.Started) })
	return all
}
