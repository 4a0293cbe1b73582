package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// NotebookRequest says where the cells of a notebook run, and in which language.
type NotebookRequest struct {
	// Sandbox or Preset; without both the cells run in a fresh jail.
	Sandbox, Preset string
	Session         string // name of the session to use and keep; "" for one that ends with the notebook
	Python          bool
	Kernel          string // that the notebook names
	Language        string
}

// NotebookSession runs the cells of a notebook.
type NotebookSession struct {
	*sandbox.Session
	Sandbox string // "" in a preset
}

// OpenNotebook opens the session that can run a notebook's language, until done is called.
func (c Code) OpenNotebook(ctx context.Context, q NotebookRequest) (s NotebookSession, done func(), err error) {
	in, leave, err := c.notebookTarget(ctx, q)
	if err != nil {
		return s, nil, err
	}
	s.Sandbox = in.sandbox
	if s.Session, err = in.open(ctx, q); err != nil {
		leave()
		if err = CodeError(err); ExitCode(err) == workorder.ExitGeneral { // the interpreter does not start
			err = exiterr.New(workorder.ExitInvalid, err, "")
		}
		return s, nil, err
	}
	return s, func() {
		if q.Session == "" {
			_ = s.Close(context.WithoutCancel(ctx)) // a sandbox that is gone has no sessions
		}
		leave()
	}, nil
}

// notebookTarget is where a notebook runs.
type notebookTarget struct {
	sandbox.Executor
	say     func(string)
	session sandbox.SessionOptions
	sandbox string // its name; "" in a preset
	preset  string
	// kept opens the session of a preset that is kept; nil if there is none.
	kept func(ctx context.Context) (*sandbox.Session, error)
}

// notebookTarget finds the sandbox that was named, or makes one.
func (c Code) notebookTarget(ctx context.Context, q NotebookRequest) (in *notebookTarget, leave func(), err error) {
	in = &notebookTarget{say: c.Say, session: sandbox.SessionOptions{ID: q.Session}}
	if q.Preset != "" {
		leave, err = c.presetTarget(ctx, q, in)
		return in, leave, err
	}
	if q.Sandbox != "" {
		sb, leave, err := c.Sandboxes().Get(ctx, q.Sandbox)
		if err != nil {
			return nil, nil, err
		}
		in.Executor, in.sandbox = sb, sb.Name()
		return in, leave, nil
	}
	m, err := c.Manager(false)
	if err != nil {
		return nil, nil, err
	}
	sb, err := m.Create(ctx, sandbox.Spec{Runtime: sandbox.RuntimeJail, Lifetime: sandbox.LifetimeEphemeral, Network: sandbox.NetworkNone})
	if err != nil {
		return nil, nil, errors.Join(SandboxError(err), m.Close())
	}
	in.Executor, in.sandbox = sb, sb.Name()
	return in, func() { _, _ = sb.Remove(context.WithoutCancel(ctx), sandbox.RemoveOptions{}), m.Close() }, nil
}

// presetTarget makes a fresh sandbox of a preset, or finds that of a session.
func (c Code) presetTarget(ctx context.Context, q NotebookRequest, in *notebookTarget) (leave func(), err error) {
	all, name, err := c.Preset(q.Preset)
	if err != nil {
		return nil, err
	}
	r, closeRunner, err := c.Runner(all, "")
	if err != nil {
		return nil, err
	}
	done := func() { _ = closeRunner(ctx) } // its sandboxes end without their owner
	in.preset = name
	if q.Session != "" {
		in.kept = func(ctx context.Context) (*sandbox.Session, error) { return r.Interpreter(ctx, name, q.Session) }
		return done, nil
	}
	executor, p, release, err := r.Acquire(ctx, name)
	if err != nil {
		done()
		return nil, CodeError(err)
	}
	in.Executor, in.session.Env, in.session.Driver, in.session.Kernel = executor, p.Env, p.Driver, p.Kernel
	return func() { _ = release(); done() }, nil
}

func (in *notebookTarget) open(ctx context.Context, q NotebookRequest) (*sandbox.Session, error) {
	so := in.session
	switch {
	case in.kept != nil:
		return in.kept(ctx)
	case so.Driver == sandbox.DriverJupyter || so.Driver == sandbox.DriverIPython: // the preset says so
		return in.OpenSession(ctx, so)
	case !q.Python && q.Kernel == "":
		return nil, exiterr.New(workorder.ExitInvalid, fmt.Errorf("the notebook is in %s and names no kernel", text.Clean(q.Language)),
			"its metadata has a kernelspec with a name once Jupyter has run it")
	case !q.Python:
		so.Driver, so.Kernel = sandbox.DriverJupyter, q.Kernel
		return in.OpenSession(ctx, so)
	}
	so.Driver = sandbox.DriverIPython
	const look = "import importlib.util as u, sys; sys.exit(u.find_spec('IPython') is None)"
	r, err := in.Run(ctx, sandbox.Command{Argv: []string{"python3", "-c", look}, Timeout: time.Minute})
	if err != nil {
		return nil, err
	}
	if r.ExitCode != 0 {
		so.Driver = sandbox.DriverPython
		where := "sandbox " + in.sandbox
		if in.preset != "" {
			where = "environment " + in.preset
		}
		in.say("note: " + where + " has no IPython: the cells run in Python, without magics and pictures")
	}
	return in.OpenSession(ctx, so)
}

// WriteNotebook replaces a file at once or not at all. A link stays, and the file that it names is replaced.
func WriteNotebook(path string, b []byte, mode fs.FileMode) error {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	return statedir.WriteFile(path, b, mode)
}
