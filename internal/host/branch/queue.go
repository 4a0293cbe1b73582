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

// Saves of one sandbox wait in a queue, whatever their process. One that has its turn saves for all that wait then,
// since their commands have ended before it looks at the files; the others read its result and go. So thirty commands
// at once take two saves and not thirty.

const (
	// queueFolder is in our repository, with a folder for each sandbox.
	queueFolder = "sandbox-agent-queue"
	// look is the pause between two looks for a result.
	look = 20 * time.Millisecond
	// stale is the age of a result whose reader has died.
	stale = time.Hour
	// maxBatch bounds the commands of a save.
	maxBatch = 1000

	suffixOf = ".ran"
	doneOf   = ".saved"
)

type queue struct{ dir, own string }

// entry is a command that waits for a save.
type entry struct {
	CommandRecord

	Subject string `json:"subject,omitempty"`

	file string
}

// result is what was saved for a command.
type result struct {
	SaveResult

	// NotShown is the text of an ErrNotPublished.
	NotShown string
}

func (r *result) err() error {
	if r.NotShown == "" {
		return nil
	}
	return &notShown{errors.New(r.NotShown)}
}

// wait puts a command in the queue.
func (b *Clone) wait(ran CommandRecord) (*queue, error) {
	q := &queue{dir: filepath.Join(b.dir, queueFolder, b.Sandbox)}
	if err := os.MkdirAll(q.dir, 0o700); err != nil {
		return nil, err
	}
	q.own = filepath.Join(q.dir, fmt.Sprintf("%020d-%s", time.Now().UnixNano(), rand.Text()))
	return q, write(q.own+suffixOf, entry{CommandRecord: ran, Subject: ran.Subject})
}

// write makes a file that others see whole or not at all.
func write(file string, content any) error {
	raw, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, raw, 0o600)
}

// turn waits until the command was saved by another, which is done, or has its turn, which unlock ends.
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
			if done, err = q.result(); done != nil || err != nil { // of who had the turn before
				l.Release()
				return done, nil, err
			}
			return nil, l.Release, nil
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return nil, nil, err
		}
	}
}

// result is what another has saved for this one; nil where none has.
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

// all are the commands that wait, in the order in which they came, and removes what dead readers have left.
func (q *queue) all() (list []entry, err error) {
	files, err := os.ReadDir(q.dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		file := filepath.Join(q.dir, f.Name())
		if !strings.HasSuffix(file, suffixOf) {
			if st, err := f.Info(); err == nil && f.Name() != "lock" && time.Since(st.ModTime()) > stale {
				_ = os.Remove(file) // the next one does
			}
			continue
		}
		e := entry{file: file}
		raw, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(raw, &e)
		}
		if err != nil { // one that a full disk has cut
			_ = os.Remove(file)
			continue
		}
		if e.CommandRecord.Subject = e.Subject; len(list) < maxBatch {
			list = append(list, e)
		}
	}
	return list, nil
}

// done tells those of the list, but this one, what was saved for them.
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

// leave takes the command out of the queue, if it says nothing that a later save could note.
func (q *queue) leave(ran CommandRecord) {
	if ran.Command == "" {
		_ = os.Remove(q.own + suffixOf) // it may be done
	}
}

// forget takes out of the sandbox's queue what ran in an earlier clone.
func (b *Branch) forget() {
	left, _ := filepath.Glob(filepath.Join(b.dir, queueFolder, b.Sandbox, "*"+suffixOf)) // a folder with such letters keeps them
	for _, file := range left {
		_ = os.Remove(file) // it may be done
	}
}

// commands are those of the list that are noted.
func commands(list []entry) (all []CommandRecord) {
	for _, e := range list {
		if e.Command != "" {
			all = append(all, e.CommandRecord)
		}
	}
	slices.SortStableFunc(all, func(a, b CommandRecord) int { return a.Started.Compare(b.Started) })
	return all
}
