// Package portforward runs the detached process that serves a sandbox's ports on this machine's loopback between two
// commands. If it is killed, the next command restarts it with the ports of the record.
package portforward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Files of a port forwarder in the sandbox's directory.
const (
	wantedFile = "ports.json"  // desired, written by commands
	heldFile   = "porter.json" // observed, written by the port forwarder
	logFile    = "porter.log"
	lockFile   = "porter.lock" // held while a command changes wantedFile
)

const (
	// answerTime covers the start of the process on a loaded machine.
	answerTime = 15 * time.Second
	answerPoll = 5 * time.Millisecond
	endTime    = 5 * time.Second // a port forwarder that takes longer is killed
	// reload makes the port forwarder read wantedFile again.
	reload  = unix.SIGUSR1
	maxSaid = 500 // characters of a failed port forwarder's log in an error
)

// ErrPortUnavailable means that another program has a port of this machine.
var ErrPortUnavailable = errors.New("port unavailable")

// Port is a port of the sandbox and its port on this machine's loopback.
type Port struct {
	Port  int `json:"port"`
	Local int `json:"local"` // 0 chooses a free one
}

type desired struct {
	Generation int64  `json:"turn"` // increases with each change
	Ports      []Port `json:"ports"`
}

type observed struct {
	Process    *statedir.Process `json:"process"`
	Generation int64             `json:"turn"` // the last one of desired that was applied
	Ports      []Port            `json:"ports"`
	Errors     map[int]string    `json:"errors,omitempty"` // by port of the sandbox
}

// Forwarder manages the port forwarder of one sandbox.
type Forwarder struct {
	Dir string // the sandbox's directory
	// Argv is the command that runs Serve, and Env its environment.
	Argv, Env []string
}

// Ports returns the desired endpoints, by port of the sandbox.
func (k *Forwarder) Ports() ([]Port, error) {
	w, err := readWanted(k.Dir)
	return w.Ports, err
}

// Add creates endpoints and returns them with their local ports. An existing endpoint keeps its port. After an error only
// the previous endpoints exist.
func (k *Forwarder) Add(ctx context.Context, ports []Port) ([]Port, error) {
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("save endpoints: %w", err)
	}
	l, err := lockfile.Take(ctx, filepath.Join(k.Dir, lockFile))
	if err != nil {
		return nil, err
	}
	defer l.Release()
	before, err := readWanted(k.Dir)
	if err != nil {
		return nil, err
	}
	now := desired{before.Generation + 1, slices.Clone(before.Ports)}
	for _, p := range ports {
		switch i := slices.IndexFunc(now.Ports, func(q Port) bool { return q.Port == p.Port }); {
		case i < 0:
			now.Ports = append(now.Ports, p)
		case p.Local != 0 && p.Local != now.Ports[i].Local:
			return nil, fmt.Errorf("port %d at %d: %w: it is already at 127.0.0.1:%d", p.Port, p.Local, ErrPortUnavailable, now.Ports[i].Local)
		}
	}
	slices.SortFunc(now.Ports, func(a, b Port) int { return a.Port - b.Port })
	h, err := k.apply(ctx, now)
	if err == nil {
		err = h.failed(ports)
	}
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
		defer cancel()
		_, cerr := k.apply(clean, desired{now.Generation + 1, before.Ports})
		return nil, errors.Join(err, cerr)
	}
	for i, p := range now.Ports {
		if j := slices.IndexFunc(h.Ports, func(q Port) bool { return q.Port == p.Port }); j >= 0 {
			now.Ports[i].Local = h.Ports[j].Local // a restarted port forwarder keeps the port
		}
	}
	if err := write(k.Dir, wantedFile, now); err != nil {
		return nil, err
	}
	added := make([]Port, 0, len(ports))
	for _, p := range ports {
		i := slices.IndexFunc(now.Ports, func(q Port) bool { return q.Port == p.Port })
		added = append(added, now.Ports[i])
	}
	return added, nil
}

// Remove ends endpoints. If one does not exist, it ends none and returns fs.ErrNotExist.
func (k *Forwarder) Remove(ctx context.Context, ports []int) error {
	l, err := lockfile.Take(ctx, filepath.Join(k.Dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("port %d has no endpoint: %w", ports[0], fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	defer l.Release()
	w, err := readWanted(k.Dir)
	if err != nil {
		return err
	}
	for _, p := range ports {
		i := slices.IndexFunc(w.Ports, func(q Port) bool { return q.Port == p })
		if i < 0 {
			return fmt.Errorf("port %d has no endpoint: %w", p, fs.ErrNotExist)
		}
		w.Ports = slices.Delete(w.Ports, i, i+1)
	}
	w.Generation++
	_, err = k.apply(ctx, w)
	return err
}

// Ensure starts the port forwarder if endpoints are desired and it is not running. The error is ErrPortUnavailable if
// another program took a port meanwhile; the other ports are served.
func (k *Forwarder) Ensure(ctx context.Context) error {
	w, err := readWanted(k.Dir)
	if err != nil || len(w.Ports) == 0 {
		return err
	}
	if h, err := readHeld(k.Dir); err == nil && h.Process.Alive() && len(h.Errors) == 0 {
		return nil
	}
	l, err := lockfile.Take(ctx, filepath.Join(k.Dir, lockFile))
	if err != nil {
		return err
	}
	defer l.Release()
	if w, err = readWanted(k.Dir); err != nil || len(w.Ports) == 0 {
		return err
	}
	w.Generation++ // the port forwarder tries failed ports again
	h, err := k.apply(ctx, w)
	if err == nil {
		err = h.failed(w.Ports)
	}
	return err
}

// Alive reports whether the port forwarder of a sandbox is running.
func Alive(dir string) bool {
	h, err := readHeld(dir)
	return err == nil && h.Process.Alive()
}

// End ends a sandbox's port forwarder and removes its files.
func End(ctx context.Context, dir string) error {
	l, err := lockfile.Take(ctx, filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Release()
	if h, err := readHeld(dir); err == nil && h.Process.Alive() {
		if err := h.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end the port forwarder: %w", err)
		}
		for until := time.Now().Add(endTime); h.Process.Alive() && ctx.Err() == nil; time.Sleep(answerPoll) {
			if time.Now().After(until) {
				_ = h.Process.Signal(unix.SIGKILL) // it has no state to save
			}
		}
	}
	var errs []error
	for _, file := range []string{wantedFile, heldFile, logFile} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	l.Remove()
	_ = os.Remove(dir) // fails if it has other files
	return errors.Join(errs...)
}

// apply writes the desired endpoints and waits until the port forwarder has applied them. The caller holds the lock.
func (k *Forwarder) apply(ctx context.Context, w desired) (observed, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := write(k.Dir, wantedFile, w); err != nil {
		return observed{}, err
	}
	var started *proc.Process
	for {
		h, err := readHeld(k.Dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return observed{}, err
		}
		lives := err == nil && h.Process.Alive()
		switch {
		case lives && h.Generation == w.Generation:
			return h, nil
		case lives:
			if err := h.Process.Signal(reload); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return observed{}, fmt.Errorf("signal the port forwarder: %w", err)
			}
		case len(w.Ports) == 0:
			return observed{}, nil // it has ended
		case started == nil:
			if started, err = k.start(ctx); err != nil {
				return observed{}, err
			}
		default:
			select {
			case <-started.Done():
				return observed{}, fmt.Errorf("the port forwarder ended: %s", said(k.Dir))
			default:
			}
		}
		select {
		case <-ctx.Done():
			return observed{}, fmt.Errorf("wait for the port forwarder: %w", context.Cause(ctx))
		case <-time.After(answerPoll):
		}
	}
}

// start starts a port forwarder, which outlives this program.
func (k *Forwarder) start(ctx context.Context) (*proc.Process, error) {
	log, err := os.OpenFile(filepath.Join(k.Dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the port forwarder: %w", err)
	}
	defer log.Close()
	p, err := proc.Start(context.WithoutCancel(ctx), proc.Spec{Argv: k.Argv, Env: k.Env, Dir: "/", Stdout: log, Stderr: log})
	if err != nil {
		return nil, fmt.Errorf("start the port forwarder: %w", err)
	}
	return p, nil
}

// failed returns the error of the first unavailable port.
func (h observed) failed(ports []Port) error {
	for _, p := range ports {
		if why := h.Errors[p.Port]; why != "" {
			return fmt.Errorf("serve port %d on this machine: %w: %s", p.Port, ErrPortUnavailable, why)
		}
	}
	return nil
}

// said returns the end of the log.
func said(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, logFile))
	if s := strings.TrimSpace(string(b)); err == nil && s != "" {
		return text.Runes(text.Clean(s[max(0, len(s)-maxSaid):]), maxSaid)
	}
	return "its log is empty"
}

func readWanted(dir string) (w desired, err error) {
	err = read(dir, wantedFile, &w)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	return w, err
}

func readHeld(dir string) (h observed, err error) { return h, read(dir, heldFile, &h) }

func read(dir, file string, document any) error {
	path := filepath.Join(dir, file)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, document); err != nil {
		return fmt.Errorf("the record of endpoints is damaged: %s: %w: `sandbox-agent down` of that sandbox removes it", path, err)
	}
	return nil
}

func write(dir, file string, document any) error {
	b, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return statedir.WriteFile(filepath.Join(dir, file), append(b, '\n'), 0o600)
}
