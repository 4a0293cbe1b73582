package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/mcpserver"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

const (
	// envIdle ends an environment that no agent uses: its next use starts it again.
	envIdle = 30 * time.Minute
	// envTimeout is what a command has where it says nothing.
	envTimeout = 5 * time.Minute
	// maxEnvOutput bounds each stream of a command, maxEnvText a log or diff, in bytes: a model reads all of it.
	maxEnvOutput = 24 << 10
	// maxEnvCommand bounds a command, in bytes: one argument of a program has at most 128 KiB.
	maxEnvCommand = 120 << 10
	maxEnvText    = 48 << 10
	// maxEnvTitle is in characters, maxEnvID what of a title is in an id, in bytes.
	maxEnvTitle = 200
	maxEnvID    = 40
	// maxEnvTries bounds the search for an id that nobody has.
	maxEnvTries = 1000
	// envNamed is how many of the user's uncommitted files are named.
	envNamed = 5
)

// mcpEnvironments are the sandboxes of the repository that the server's folder is in, for agents: what `up`, `exec`, `log` and `diff` do.
type mcpEnvironments struct {
	a       *App
	log     *slog.Logger
	runtime sandbox.Runtime
}

// envCall is what one call needs. What there is to say to a person, it notes.
type envCall struct {
	a    *App
	said *text.Ends
	top  string
	m    *sandbox.Manager
}

func (t *mcpEnvironments) call() (*envCall, error) {
	said := text.NewEnds(mcpSummary)
	c := &envCall{a: &App{t.a.With(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: said})}, said: said}
	var err error
	if c.top, err = c.a.top(); err != nil {
		return nil, err
	}
	if c.top == "" {
		return nil, errors.New("the folder of the server is in no git repository: ask the user to start the server in one")
	}
	c.a.Progress = func(line string) {
		if strings.HasPrefix(line, "warning: ") || strings.Contains(line, " failed: ") {
			fmt.Fprintln(c.said, text.Clean(line))
		}
	}
	c.m, err = c.a.Manager(false)
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
		return wrong("unknown environment %.80q: there is none in this repository; environment_create makes one", id)
	case id == "":
		return wrong("environment_id is needed: one of %s", strings.Join(ids, ", "))
	}
	return wrong("unknown environment %.80q; there are: %s", id, strings.Join(ids, ", "))
}

// Open finds an environment.
func (t *mcpEnvironments) Open(ctx context.Context, id string) (mcpserver.Environment, error) {
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

func (t *mcpEnvironments) open(ctx context.Context, c *envCall, id string) (*mcpEnvironment, error) {
	if !sandbox.ValidName(id) {
		return nil, c.unknown(ctx, id)
	}
	sb, err := c.m.Get(ctx, id)
	if errors.Is(err, sandbox.ErrNotFound) || err == nil && (sb.Spec().Repo != c.top || !sb.Info().Own) {
		return nil, c.unknown(ctx, id)
	}
	if err != nil {
		return nil, wrongCall(sandboxError(err))
	}
	all, err := c.a.branches()
	if err != nil {
		return nil, err
	}
	c.a.Endpoints().Ensure(ctx, id)
	return &mcpEnvironment{envCall: c, log: t.log, sb: sb, b: all.Of(id, c.top)}, nil
}

// List is the environments of the repository, the last that was changed first: also those that are gone, whose commits stay.
func (t *mcpEnvironments) List(ctx context.Context) ([]mcpserver.EnvironmentInfo, error) {
	c, err := t.call()
	if err != nil {
		return nil, err
	}
	defer c.m.Close()
	rows, err := c.a.Branches().List(ctx, false)
	if err != nil {
		return nil, wrongCall(err)
	}
	all := make([]mcpserver.EnvironmentInfo, 0, len(rows))
	for _, r := range rows {
		all = append(all, mcpserver.EnvironmentInfo{
			ID: r.Name, Title: text.Clean(r.Title), State: string(r.State), Branch: branch.Remote + "/" + r.Name, Updated: r.Updated.UTC().Format(time.RFC3339),
		})
	}
	return all, nil
}

// Create makes an environment as `up ID --repo .` does.
func (t *mcpEnvironments) Create(ctx context.Context, q mcpserver.EnvironmentRequest) (mcpserver.EnvironmentInfo, error) {
	c, err := t.call()
	if err != nil {
		return mcpserver.EnvironmentInfo{}, err
	}
	e, notes, err := t.create(ctx, c, q)
	if err != nil {
		return mcpserver.EnvironmentInfo{}, errors.Join(err, c.m.Close())
	}
	defer e.Close(ctx)
	t.log.Info("environment", "id", e.sb.Name(), "runtime", e.sb.Spec().Runtime)
	i, err := e.Info(ctx)
	i.Notes = append(notes, i.Notes...)
	return i, err
}

func (t *mcpEnvironments) create(ctx context.Context, c *envCall, q mcpserver.EnvironmentRequest) (e *mcpEnvironment, notes []string, err error) {
	repo, err := localrepo.Open(ctx, c.top)
	if err != nil {
		return nil, nil, wrongCall(err)
	}
	begin, err := beginning(ctx, repo, q.Ref)
	if err != nil {
		return nil, nil, err
	}
	s := sandbox.Spec{Title: text.Runes(text.Words(text.Clean(q.Title)), maxEnvTitle), Runtime: t.runtime, IdleTimeout: envIdle}
	switch t.runtime {
	case sandbox.RuntimeContainer, sandbox.RuntimeJail:
		s.Repo, s.Ref = c.top, begin
		if t.runtime == sandbox.RuntimeContainer {
			s.Image, err = c.a.Sandboxes().ContainerImage(ctx)
		}
	default:
		err = c.a.Sandboxes().ApplyProject(ctx, &s, "", c.top, begin)
	}
	if err != nil {
		return nil, nil, wrongCall(err)
	}
	all, err := c.a.branches()
	if err != nil {
		return nil, nil, err
	}
	sb, err := c.named(ctx, all, s)
	if err != nil {
		return nil, nil, wrongCall(sandboxError(err))
	}
	e = &mcpEnvironment{envCall: c, log: t.log, sb: sb, b: all.Of(sb.Name(), c.top)}
	c.a.Sandboxes().Save(ctx, sb, sandbox.CommandRecord{})
	if n := len(repo.Changed); n > 0 {
		files := strings.Join(repo.Changed[:min(n, envNamed)], ", ")
		if n > envNamed {
			files += fmt.Sprintf(" and %d more", n-envNamed)
		}
		notes = append(notes, "WARNING: the user has UNCOMMITTED CHANGES, which are NOT in this environment: "+text.Clean(files)+". Tell the user before you begin: work that builds on them needs them committed first.")
	}
	return e, notes, nil
}

// named makes a sandbox under an ID of its title that neither a sandbox nor a branch has.
func (c *envCall) named(ctx context.Context, all *branch.Store, s sandbox.Spec) (*sandbox.Sandbox, error) {
	stem := envID(s.Title)
	for n := 1; n <= maxEnvTries; n++ {
		s.Name = stem
		if n > 1 {
			s.Name += "-" + strconv.Itoa(n)
		}
		if all.Of(s.Name, c.top).Head(ctx) != "" {
			continue
		}
		sb, err := c.m.Create(ctx, s)
		if !errors.Is(err, sandbox.ErrExists) {
			return sb, err
		}
	}
	return nil, fmt.Errorf("there are %d environments whose ids begin with %s: take another title", maxEnvTries, stem)
}

var notInID = regexp.MustCompile(`[^a-z0-9]+`)

// envID is what of a title can be an ID.
func envID(title string) string {
	id := strings.Trim(notInID.ReplaceAllString(strings.ToLower(title), "-"), "-")
	return cmp.Or(strings.Trim(id[:min(len(id), maxEnvID)], "-"), "env")
}

// validRef is what an agent may name a commit by.
var validRef = regexp.MustCompile(`^[a-zA-Z0-9._~/][a-zA-Z0-9._~/-]{0,199}$`)

// beginning is the branch, tag or commit that a clone begins at.
func beginning(ctx context.Context, repo *localrepo.Repo, ref string) (string, error) {
	if ref != "" && !validRef.MatchString(ref) {
		return "", wrong("from_git_ref %.80q is neither branch, tag nor commit", ref)
	}
	begin, err := repo.Base(ctx, ref)
	if errors.Is(err, localrepo.ErrNoRevision) {
		return "", wrong("from_git_ref: %v", err)
	}
	return begin, err
}
