package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/boxruntime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime/docker"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// labelTask is the label by which the inner engine's services name their box. It is not the label of tasks.
const labelTask = "sandbox-agent.sandbox.task"

func (cr *creator) boxes(e *docker.Engine, o Options) *boxruntime.Runtime {
	dir, err := o.stateDir()
	if err != nil {
		dir = os.TempDir() // only a lock file
	}
	log := cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	volume := cmp.Or(o.Getenv("SANDBOX_AGENT_CACHE_VOLUME"), runtime.CacheVolume)
	return &boxruntime.Runtime{
		ContainerEngine: e, Images: provision.Images{Client: e.Client(), Version: version.String(), StateDir: dir, Programs: cr.programs},
		CacheVolume: volume, Log: log, Progress: progress(o.Progress),
		LoadOrder: func(ctx context.Context, b runtime.Instance) (*workorder.Envelope, error) {
			return cr.envelope(ctx, known(b), b.Labels[labelTask])
		},
	}
}

// progress adapts a line callback to task events.
func progress(say func(string)) func(workorder.Event) {
	if say == nil {
		return nil
	}
	return func(e workorder.Event) {
		switch {
		case e.Type == workorder.EventStepFinished && e.Status == string(workorder.StepFailed):
			say(e.Name + " failed: " + e.Text)
		case e.Type == workorder.EventStepStarted:
			say(e.Name)
		case e.Type == workorder.EventWarning:
			say("warning: " + e.Text)
		}
	}
}

// envelope returns the work order of a standalone box, with its secrets.
func (cr *creator) envelope(ctx context.Context, s Spec, task string) (*workorder.Envelope, error) {
	o := workorder.Order{
		Version: workorder.Version, TaskID: task, AttemptID: workorder.NewAttemptID(), Mode: workorder.ModeStandalone,
		Project: s.Name, Author: git.DefaultAuthor(),
		Standalone: &workorder.Standalone{
			IdleTimeoutMS: s.IdleTimeout.Milliseconds(), TTLMS: s.TTL.Milliseconds(),
			OwnerTimeoutMS: s.OwnerTimeout.Milliseconds(),
		},
	}
	if s.Author != "" || s.Repo != "" && s.local() {
		o.Author.Name, o.Author.Email = s.author(ctx, s.Repo)
	}
	var err error
	if o.BoxSpec, err = s.Box.order(); err != nil {
		return nil, fmt.Errorf("%w: box: %w", ErrInvalidSpec, err)
	}
	o.Image, o.OCIRuntime = s.Image, s.OCIRuntime
	if o.Env == nil {
		o.Env = map[string]string{}
	}
	for _, kv := range s.Env {
		name, value, _ := strings.Cut(kv, "=")
		o.Env[name] = value
		delete(o.ImageEnv, name)
	}
	o.Network.Mode = workorder.NetworkMode(s.Network)
	o.Network.Allow = append(o.Network.Allow, s.Allow...)
	if s.Network != NetworkRestricted {
		o.Network.Allow = nil
	}
	l := s.Limits.effective()
	o.Limits.MemoryBytes, o.Limits.CPUs, o.Limits.PIDs = l.MemoryBytes, l.CPUs, l.PIDs
	if s.Repo != "" {
		o.Repo, o.CloneURL, o.Branch, o.TargetBranch = s.Repo, s.Repo, s.Ref, "sandbox/"+s.Name
		if filepath.IsAbs(s.Repo) {
			o.CloneURL = workorder.RepoIn
		}
	}
	env := &workorder.Envelope{Order: o}
	if cr.secrets != nil {
		got, err := cr.secrets(ctx, s)
		if err != nil {
			return nil, err
		}
		env.Secrets, env.Git = got.Values, (*workorder.GitCredential)(got.Git)
	}
	// An optional secret may be missing.
	var missing []string
	for _, name := range o.SecretNames {
		if _, there := env.Secrets[name]; !there {
			missing = append(missing, name)
		}
	}
	env.Order.LeaveOut(missing)
	if err := env.Order.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidSpec, err)
	}
	return env, nil
}

// local reports whether the repository is on this machine.
func (s Spec) local() bool {
	t, err := git.RepoTransport(s.Repo)
	return err == nil && t == git.TransportLocal
}

const copyPrefix = "sandbox-agent-copy-" // of temporary directories

// copyDir makes a locked directory for a copy in parent, which remove deletes. It also removes directories of killed programs:
// nothing holds their lock.
func copyDir(parent string) (dir string, remove func(), err error) {
	sweepCopies(parent)
	const tries = 10
	for range tries {
		if dir, err = os.MkdirTemp(parent, copyPrefix); err != nil {
			return "", nil, err
		}
		// Before it was locked, another program may have removed it as a leftover.
		if f := lockDir(dir); f != nil {
			return dir, func() { _, _ = os.RemoveAll(dir), f.Close() }, nil
		}
		_ = os.Remove(dir)
	}
	return "", nil, fmt.Errorf("lock %s: file system without locks: set TMPDIR to a directory on another file system", dir)
}

func sweepCopies(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, copyPrefix+"*")) // fails only for special characters in the path
	for _, dir := range left {
		if f := lockDir(dir); f != nil {
			_, _ = os.RemoveAll(dir), f.Close() // fails for another user's directory
		}
	}
}

// lockDir opens and locks a directory. It returns nil if the directory is missing or locked by another program.
func lockDir(dir string) *os.File {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	there, err := os.Lstat(dir)
	if err == nil && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		if here, err := f.Stat(); err == nil && os.SameFile(here, there) {
			if _, err := os.Lstat(dir); err == nil {
				return f
			}
		}
	}
	_ = f.Close()
	return nil
}
