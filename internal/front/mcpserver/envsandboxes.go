package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

const (
	// envIdle ends an environment that no agent uses: its next use starts it again.
	envIdle = 30 * time.Minute
	// envTimeout is what a command has where it says nothing.
	envTimeout = 5 * time.Minute
	// maxNotes bounds the remarks of a call, in bytes.
	maxNotes = 4 << 10
	// maxEnvOutput bounds each stream of a command, maxEnvText a log or diff, in bytes: a model reads all of it.
	maxEnvOutput = 24 << 10
	// maxEnvCommand bounds a command, in bytes: one argument of a program has at most 128 KiB.
	maxEnvCommand = 120 << 10
	maxEnvText    = 48 << 10
	// maxEnvTitle is in characters.
	maxEnvTitle = 200
)

// repoSandboxes are the sandboxes of the repository of the server's directory.
type repoSandboxes struct {
	env     *app.Env
	log     *slog.Logger
	runtime sandbox.Runtime
}

// NewSandboxes returns the sandboxes of the repository of the server's directory. New ones get that runtime.
func NewSandboxes(env *app.Env, log *slog.Logger, runtime sandbox.Runtime) Sandboxes {
	return &repoSandboxes{env, log, runtime}
}

// envCall is what one call needs. It collects remarks for the answer.
type envCall struct {
	env  app.Env
	said *text.HeadTail
	top  string
	m    *sandbox.Manager
}

func (t *repoSandboxes) call() (*envCall, error) {
	c := &envCall{env: *t.env, said: text.NewHeadTail(maxNotes)}
	c.env.Confirm = nil
	c.env.Note = func(line string) { fmt.Fprintln(c.said, text.Clean(line)) }
	c.env.Logger = func() *slog.Logger {
		return slog.New(slog.NewTextHandler(c.said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	var err error
	if c.top, err = c.env.RepoRoot(); err != nil {
		return nil, err
	}
	if c.top == "" {
		return nil, errors.New("the server's directory is not in a git repository: ask the user to start the server in one")
	}
	c.env.Progress = func(line string) {
		if strings.HasPrefix(line, "warning: ") || strings.Contains(line, " failed: ") {
			c.env.Note(line)
		}
	}
	c.m, err = c.env.Manager(false)
	return c, err
}

// notes are the lines that were said.
func (c *envCall) notes(more ...string) []string {
	for l := range strings.Lines(text.Clean(string(c.said.Bytes()))) {
		if l = strings.TrimSpace(l); l != "" {
			more = append(more, l)
		}
	}
	return more
}

// ids are the environments that can be used.
func (c *envCall) ids(ctx context.Context) (ids []string) {
	all, _ := c.m.List(ctx) // of kinds that do not answer nothing can be used
	for _, i := range all {
		if i.Own && i.Spec.Repo == c.top {
			ids = append(ids, i.Name)
		}
	}
	return ids
}

func (c *envCall) unknown(ctx context.Context, id string) error {
	ids := c.ids(ctx)
	slices.Sort(ids)
	switch {
	case len(ids) == 0:
		return Wrongf("unknown environment %.80q: there is none in this repository; environment_create makes one", id)
	case id == "":
		return Wrongf("environment_id is needed: one of %s", strings.Join(ids, ", "))
	}
	return Wrongf("unknown environment %.80q; there are: %s", id, strings.Join(ids, ", "))
}

// Open finds an environment.
func (t *repoSandboxes) Open(ctx context.Context, id string) (Sandbox, error) {
	c, err := t.call()
	if err != nil {
		return nil, err
	}
	e, err := t.open(ctx, c, id)
	if err != nil {
		return nil, errors.Join(err, c.m.Close())
	}
	return e, nil
}

func (t *repoSandboxes) open(ctx context.Context, c *envCall, id string) (*branchSandbox, error) {
	if !sandbox.ValidName(id) {
		return nil, c.unknown(ctx, id)
	}
	sb, err := c.m.Get(ctx, id)
	if errors.Is(err, sandbox.ErrNotFound) || err == nil && (sb.Spec().Repo != c.top || !sb.Info().Own) {
		return nil, c.unknown(ctx, id)
	}
	if err != nil {
		return nil, WrongCall(app.SandboxError(err))
	}
	all, err := c.env.BranchStore()
	if err != nil {
		return nil, err
	}
	c.env.Endpoints().Ensure(ctx, id)
	return &branchSandbox{envCall: c, log: t.log, sb: sb, b: all.Of(id, c.top)}, nil
}

// List is the environments of the repository, the last that was changed first: also those that are gone, whose commits stay.
func (t *repoSandboxes) List(ctx context.Context) ([]SandboxInfo, error) {
	c, err := t.call()
	if err != nil {
		return nil, err
	}
	defer c.m.Close()
	rows, err := c.env.Branches().List(ctx, false)
	if err != nil {
		return nil, WrongCall(err)
	}
	all := make([]SandboxInfo, 0, len(rows))
	for _, r := range rows {
		all = append(all, SandboxInfo{
			ID: r.Name, Title: text.Clean(r.Title), State: string(r.State), Branch: app.BranchName(r.Name),
			Updated: r.Updated.UTC().Format(time.RFC3339),
		})
	}
	return all, nil
}

// Create makes an environment as `up ID --repo .` does.
func (t *repoSandboxes) Create(ctx context.Context, q SandboxRequest) (SandboxInfo, error) {
	c, err := t.call()
	if err != nil {
		return SandboxInfo{}, err
	}
	e, notes, err := t.create(ctx, c, q)
	if err != nil {
		return SandboxInfo{}, errors.Join(err, c.m.Close())
	}
	defer e.Close(ctx)
	t.log.Info("environment", "id", e.sb.Name(), "runtime", e.sb.Spec().Runtime)
	i, err := e.Info(ctx)
	i.Notes = append(notes, i.Notes...)
	return i, err
}

func (t *repoSandboxes) create(
	ctx context.Context, c *envCall, q SandboxRequest,
) (e *branchSandbox, notes []string, err error) {
	s := sandbox.Spec{Title: text.Runes(text.Words(text.Clean(q.Title)), maxEnvTitle), Runtime: t.runtime, IdleTimeout: envIdle}
	sb, changed, err := c.env.Sandboxes().CreateTitled(ctx, c.m, s, c.top, q.Ref)
	if err != nil {
		return nil, nil, WrongCall(err)
	}
	all, err := c.env.BranchStore()
	if err != nil {
		return nil, nil, err
	}
	e = &branchSandbox{envCall: c, log: t.log, sb: sb, b: all.Of(sb.Name(), c.top)}
	c.env.Sandboxes().Save(ctx, sb, sandbox.CommandRecord{})
	if len(changed) > 0 {
		notes = append(notes, "WARNING: the user has UNCOMMITTED CHANGES, which are NOT in this environment: "+app.ChangedFiles(changed)+
			". Tell the user before you begin: work that builds on them needs them committed first.")
	}
	return e, notes, nil
}
