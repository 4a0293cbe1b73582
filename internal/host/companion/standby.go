package companion

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	standbyLock     = "standby.lock" // in the state directory; there once standbys were kept
	standbyTemp     = "standby-"     // and the owner, in the state directory
	standbyLockTime = 5 * time.Second
	ownerPoll       = time.Second
)

// Instances is the part of an engine that Standbys needs. It may also be a runtime.StandbyRuntime.
type Instances interface {
	Instances(ctx context.Context, labels map[string]string) ([]runtime.Instance, error)
	Remove(ctx context.Context, id string) error
}

// Standbys are the boxes of a state directory that wait for an order. Its lock lets one process at a time take or remove one: an
// engine may rename a box for each of two clients.
type Standbys struct {
	Engine Instances
	Dir    string // the state directory
}

// Used reports whether standbys were ever kept.
func (s Standbys) Used() bool {
	_, err := os.Lstat(filepath.Join(s.Dir, standbyLock))
	return err == nil
}

func (s Standbys) locked(ctx context.Context, do func(runtime.StandbyRuntime) error) error {
	r, ok := s.Engine.(runtime.StandbyRuntime)
	if !ok {
		return fmt.Errorf("keep sandboxes on standby: %w", runtime.ErrUnsupported)
	}
	wait, cancel := context.WithTimeout(ctx, standbyLockTime)
	defer cancel()
	lock, err := lockfile.Take(wait, filepath.Join(s.Dir, standbyLock))
	if err != nil {
		return err
	}
	defer lock.Release()
	return do(r)
}

// Keep begins to keep standbys in this process, and returns the label of those.
func (s Standbys) Keep(ctx context.Context) (label string, err error) {
	if err := s.locked(ctx, func(runtime.StandbyRuntime) error { return nil }); err != nil {
		return "", err
	}
	b, err := json.Marshal(statedir.ProcessOf(os.Getpid()))
	return string(b), err
}

// Take takes a box that is ready and has the labels and the key: it calls chosen, resumes the box and gives it the name. A box that gets
// no order after that ends by itself. id is empty if no box fits; boxes are all that have the labels.
func (s Standbys) Take(
	ctx context.Context, labels map[string]string, key, name string, chosen func(runtime.Instance) error,
) (id string, boxes []runtime.Instance, err error) {
	err = s.locked(ctx, func(r runtime.StandbyRuntime) error {
		if boxes, err = s.Engine.Instances(ctx, labels); err != nil {
			return err
		}
		i := slices.IndexFunc(boxes, func(b runtime.Instance) bool { return b.Ready() && b.Labels[workorder.LabelStandby] == key })
		if i < 0 {
			return nil
		}
		if err := chosen(boxes[i]); err != nil {
			return err
		}
		if err := r.Resume(ctx, boxes[i].ID); err != nil {
			return err
		}
		id = boxes[i].ID
		return r.Rename(ctx, boxes[i].Name, name)
	})
	return id, boxes, err
}

// Remove removes a waiting box, unless it was taken.
func (s Standbys) Remove(ctx context.Context, b runtime.Instance) error {
	const ended = "-ended"
	if !strings.HasSuffix(b.Name, ended) {
		err := s.locked(ctx, func(r runtime.StandbyRuntime) error { return r.Rename(ctx, b.Name, b.Name+ended) })
		if errors.Is(err, runtime.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return s.Engine.Remove(ctx, b.ID)
}

// TempDir is the owner's directory for files that it gives to boxes. It is removed with its boxes.
func (s Standbys) TempDir(owner string) string {
	return filepath.Join(s.Dir, standbyTemp+hex.EncodeToString([]byte(owner)))
}

// DeadTemps lists the directories of owners that have died.
func (s Standbys) DeadTemps() []string {
	dirs, _ := filepath.Glob(filepath.Join(s.Dir, standbyTemp+"*")) // its only error is a bad pattern
	return slices.DeleteFunc(dirs, func(dir string) bool {
		owner, err := hex.DecodeString(strings.TrimPrefix(filepath.Base(dir), standbyTemp))
		return err != nil || lives(string(owner))
	})
}

// RemoveAll removes the waiting boxes of an owner.
func (s Standbys) RemoveAll(ctx context.Context, owner string) error {
	boxes, err := s.Engine.Instances(ctx, map[string]string{workorder.LabelStandbyOwner: owner})
	errs := []error{err, os.RemoveAll(s.TempDir(owner))}
	for _, b := range boxes {
		if b.Waits() {
			errs = append(errs, s.Remove(ctx, b))
		}
	}
	return errors.Join(errs...)
}

// RemoveDead removes the waiting boxes of a state directory whose owners have died.
func (s Standbys) RemoveDead(ctx context.Context, stateOwner string) error {
	boxes, err := s.Engine.Instances(ctx, map[string]string{workorder.LabelOwner: stateOwner, workorder.LabelStandby: ""})
	errs := []error{err}
	for _, b := range boxes {
		if b.Waits() && !Kept(b) {
			errs = append(errs, s.Remove(ctx, b))
		}
	}
	for _, dir := range s.DeadTemps() {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// Kept reports whether the process that keeps a standby lives.
func Kept(b runtime.Instance) bool { return lives(b.Labels[workorder.LabelStandbyOwner]) }

func lives(owner string) bool {
	var p statedir.Process
	return json.Unmarshal([]byte(owner), &p) == nil && p.Alive()
}

// outlive removes the standbys of an owner after its end, however it ended.
func outlive(ctx context.Context, s Standbys, owner string) error {
	for lives(owner) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(ownerPoll):
		}
	}
	// The engine may still carry out the owner's last request.
	err := s.RemoveAll(ctx, owner)
	time.Sleep(orphanTimeout)
	return errors.Join(err, s.RemoveAll(ctx, owner))
}

// StartingBox is the start of a box until it reports that it is ready.
type StartingBox struct {
	Engine   runtime.Runtime
	Images   []string // of the engine, which the box may request
	Progress func(workorder.Event)
	Ready    func(workorder.Event) bool
	Log      *slog.Logger
}

const (
	// readyTime bounds the steps until a box is ready. The sum of their own bounds would be hours.
	readyTime = 30 * time.Minute
	maxSaid   = 2000 // characters of the output of a failed box in an error
)

var errReady = errors.New("the box is ready") // ends the wait for it

// Wait waits until the box is ready, and sends it the images that it requests. If the box ends first, the error has its output.
func (s StartingBox) Wait(ctx context.Context, id string, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	follow, done := context.WithCancelCause(ctx)
	defer done(nil)
	store, _ := s.Engine.(runtime.ImageStore)
	sender := ImageSender{Files: runtime.CopierOf(s.Engine), Store: store, Images: s.Images, Dir: os.TempDir(), Log: s.Log}
	var jobs sync.WaitGroup
	defer jobs.Wait()
	var failed string
	out := text.WholeLines(lineLimit, func(line []byte) {
		e, err := workorder.DecodeEvent(line)
		if err != nil {
			return
		}
		switch {
		case e.Type == workorder.EventImageRequest:
			jobs.Go(func() { sender.HandleRequest(ctx, id, e) })
			return
		case s.Ready(e):
			done(errReady)
		case e.Type != workorder.EventService && e.Status == string(workorder.StepFailed):
			failed = cmp.Or(failed, strings.TrimPrefix(e.Name+": "+e.Text, ": ")) // not that of the result, which names none
		}
		s.Progress(e)
	})
	said := &proc.Prefix{Max: maxSaid}
	err := s.Engine.Logs(follow, id, runtime.LogOptions{Follow: true, Since: since, Stdout: out, Stderr: said})
	switch {
	case errors.Is(context.Cause(follow), errReady):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("prepare the sandbox: %w", context.Cause(ctx))
	case failed == "" && err != nil:
		return err
	}
	return fmt.Errorf(
		"the sandbox failed to start: %w",
		errors.New(text.Runes(text.Clean(strings.TrimSpace(cmp.Or(failed, said.String(), "it ended"))), maxSaid)),
	)
}
