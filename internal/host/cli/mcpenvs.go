package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/mcpserver"
	"github.com/sandbox-agent/sandbox-agent/internal/host/porter"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// envIdle ends an environment that no agent uses: its next use starts it again.
	envIdle = 30 * time.Minute
	// envTimeout is what a command has where it says nothing.
	envTimeout = 5 * time.Minute
	// maxEnvOutput bounds each stream of a command, maxEnvText a log or diff, in bytes: a model reads all of it.
	maxEnvOutput = 24 << 10
	maxEnvText   = 48 << 10
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
	runtime sandbox.Kind
}

// envCall is what one call needs. What there is to say to a person, it notes.
type envCall struct {
	a    App
	said *text.Ends
	top  string
	m    *sandbox.Manager
}

func (t *mcpEnvironments) call() (*envCall, error) {
	c := &envCall{a: *t.a, said: text.NewEnds(mcpSummary)}
	c.a.Stdin, c.a.Stdout, c.a.Stderr = strings.NewReader(""), io.Discard, c.said
	var err error
	if c.top, err = c.a.top(); err != nil {
		return nil, err
	}
	if c.top == "" {
		return nil, errors.New("the folder of the server is in no git repository: ask the user to start the server in one")
	}
	if c.a.Sandboxes == nil {
		return nil, fault.New(workorder.ExitBox, errors.New("this program was made without sandboxes"), "")
	}
	c.m, err = c.a.Sandboxes(sandbox.Options{Getenv: c.a.Getenv, Secrets: c.a.boxSecrets, Log: c.a.log(), Progress: func(line string) {
		if strings.HasPrefix(line, "warning: ") || strings.Contains(line, " failed: ") {
			fmt.Fprintln(c.said, text.Clean(line))
		}
	}})
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
	c.a.ensureEndpoints(ctx, id)
	return &mcpEnvironment{envCall: c, log: t.log, sb: sb, b: all.Of(id, c.top)}, nil
}

// List is the environments of the repository, the last that was changed first: also those that are gone, whose commits stay.
func (t *mcpEnvironments) List(ctx context.Context) ([]mcpserver.EnvironmentInfo, error) {
	c, err := t.call()
	if err != nil {
		return nil, err
	}
	defer c.m.Close()
	rows, err := c.a.listed(ctx, false)
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
	begin, commit, err := beginning(ctx, repo, q.Ref)
	if err != nil {
		return nil, nil, err
	}
	s := sandbox.Spec{Title: text.Runes(text.Words(text.Clean(q.Title)), maxEnvTitle), Runtime: t.runtime, Idle: envIdle}
	switch t.runtime {
	case sandbox.KindContainer, sandbox.KindJail:
		s.Repo, s.Ref = c.top, begin
		if t.runtime == sandbox.KindContainer {
			if s.Image = c.a.Getenv(imageVariable); s.Image == "" {
				s.Image, err = c.a.taskImage(ctx)
			}
		}
	default:
		err = c.a.boxSpec(ctx, &s, "", c.top, begin)
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
	if commit != "" {
		r, err := sb.Run(ctx, sandbox.Command{Argv: []string{"git", "reset", "--quiet", "--hard", commit}, Dir: sandbox.CloneDir})
		if err == nil && r.ExitCode != 0 {
			err = wrong("from_git_ref %.80q: commit %.10s is on no branch and no tag, so it is not in a clone", q.Ref, commit)
		}
		if err != nil {
			return nil, nil, errors.Join(err, sb.Remove(context.WithoutCancel(ctx)))
		}
	}
	e.save(ctx, sandbox.Ran{})
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

// beginning is the branch that a clone begins at, and the commit where that is another.
func beginning(ctx context.Context, repo *localrepo.Repo, ref string) (begin, commit string, err error) {
	if ref != "" && !validRef.MatchString(ref) {
		return "", "", wrong("from_git_ref %.80q is neither branch, tag nor commit", ref)
	}
	if ref == "HEAD" {
		ref = ""
	}
	if begin, err = repo.Base(ctx, ref); err == nil {
		return begin, "", nil
	}
	if ref == "" && repo.Head != "" { // it has no commit
		return "", "", wrongCall(err)
	}
	if commit, _ = localrepo.Git(repo.Path).Resolve(ctx, cmp.Or(ref, "HEAD")); commit == "" { // git says no more than that it is none
		return "", "", wrong("from_git_ref %.80q is neither branch, tag nor commit", ref)
	}
	// Any branch does: its files give way to the commit's.
	if begin = repo.Head; begin == "" {
		out, err := localrepo.Git(repo.Path).Output(ctx, "for-each-ref", "--count=1", "--sort=-committerdate", "--format=%(refname:strip=2)", "refs/heads")
		if err != nil {
			return "", "", err
		}
		begin = strings.TrimSpace(string(out))
	}
	return begin, commit, nil
}

// mcpEnvironment is one environment during a call.
type mcpEnvironment struct {
	*envCall
	log *slog.Logger
	sb  *sandbox.Sandbox
	b   *branch.Branch
}

// Close ends the call.
func (e *mcpEnvironment) Close(ctx context.Context) {
	_, _ = e.sb.Close(context.WithoutCancel(ctx)), e.m.Close()
}

// wake starts the environment, and brings its work back where it had to be made anew.
func (e *mcpEnvironment) wake(ctx context.Context) error {
	if err := e.sb.Resume(ctx); err != nil {
		return wrongCall(sandboxError(err))
	}
	if !e.sb.Renewed() {
		return nil
	}
	if err := e.sb.RestoreWork(ctx); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	fmt.Fprintln(e.said, "note: the environment was gone and is made anew; its commits are in it, other files of before are not")
	return nil
}

func (e *mcpEnvironment) save(ctx context.Context, ran sandbox.Ran) string {
	return e.a.save(ctx, e.sb, ran)
}

// Info is what is known of it.
func (e *mcpEnvironment) Info(ctx context.Context) (mcpserver.EnvironmentInfo, error) {
	at, err := e.endpoints(nil)
	return mcpserver.EnvironmentInfo{
		ID: e.sb.Name(), Title: cmp.Or(e.b.Title(ctx), e.sb.Spec().Title), State: string(e.sb.Info().State), Branch: branch.Remote + "/" + e.sb.Name(), Workdir: sandbox.CloneDir, Endpoints: at, Notes: e.notes(),
	}, err
}

// endpoints are where ports are on this machine; without a list those that are kept.
func (e *mcpEnvironment) endpoints(ports []porter.Port) (map[string]mcpserver.EnvironmentEndpoint, error) {
	served := endpointsOf(ports)
	if ports == nil {
		var err error
		if served, err = e.a.endpoints(e.sb.Name()); err != nil {
			return nil, err
		}
	}
	all := map[string]mcpserver.EnvironmentEndpoint{}
	for port, at := range served {
		all[port] = mcpserver.EnvironmentEndpoint{Inside: "localhost:" + port, Host: at}
	}
	for _, s := range e.services() {
		for _, p := range s.Ports {
			outer, inner, both := strings.Cut(p, ":")
			if !both {
				outer, inner = p, p
			}
			all[s.Name+":"+inner] = mcpserver.EnvironmentEndpoint{Inside: s.Name + ":" + inner, Host: served[outer]}
		}
	}
	return all, nil
}

func (e *mcpEnvironment) services() []workorder.Service {
	if box := e.sb.Spec().Box; box != nil {
		return box.Services
	}
	return nil
}

func (e *mcpEnvironment) exposed(ctx context.Context, ports []int) ([]porter.Port, error) {
	names := make([]string, 0, len(ports))
	for _, p := range ports {
		names = append(names, strconv.Itoa(p))
	}
	parsed, err := parsePorts(names)
	if err != nil {
		return nil, &mcpserver.WrongError{Err: err}
	}
	if len(parsed) == 0 {
		return nil, nil
	}
	added, err := e.a.expose(ctx, e.sb.Name(), parsed)
	return added, wrongCall(err)
}

// Run runs a command as `exec` does.
func (e *mcpEnvironment) Run(ctx context.Context, q mcpserver.EnvironmentCommand) (r mcpserver.EnvironmentResult, err error) {
	if err := e.wake(ctx); err != nil {
		return r, err
	}
	ports, err := e.exposed(ctx, q.Ports)
	if err != nil {
		return r, err
	}
	if len(ports) > 0 {
		if r.Endpoints, err = e.endpoints(ports); err != nil {
			return r, err
		}
	}
	c := sandbox.Command{Argv: []string{cmp.Or(q.Shell, shells[0]), "-c", q.Command}, Dir: sandbox.CloneDir, Background: q.Background, MaxOutput: maxEnvOutput, Timeout: time.Duration(q.Timeout * float64(time.Second))}
	if q.Background {
		p, err := e.sb.Start(ctx, c)
		if err != nil {
			return r, wrongCall(sandboxError(err))
		}
		defer p.Close()
		if len(ports) > 0 {
			if err := e.a.listening(ctx, e.sb, p, ports); err != nil {
				return r, wrongCall(err)
			}
		}
		r.Notes = e.notes(fmt.Sprintf("it runs in the background: `sandbox-agent attach %s %s` shows the user what it prints; what it changes is committed with the next command", e.sb.Name(), p.ID()))
		return r, nil
	}
	if c.Timeout == 0 {
		c.Timeout = envTimeout
	}
	started := time.Now()
	got, err := e.sb.Run(ctx, c)
	if err != nil {
		if ctx.Err() != nil { // what it had changed by then is not lost
			e.save(ctx, sandbox.Ran{Subject: "Save"})
		}
		return r, wrongCall(sandboxError(err))
	}
	ran := ranNow(c.Argv, started, got.ExitCode)
	ran.Why = text.Runes(text.Clean(q.Explanation), maxEnvTitle)
	r.Commit = e.save(ctx, ran)
	r.Stdout, r.Stderr, r.ExitCode, r.TimedOut = string(got.Stdout), string(got.Stderr), got.ExitCode, got.TimedOut
	if got.TimedOut {
		r.ExitCode = exitTimedOut
		r.Notes = append(r.Notes, fmt.Sprintf("it was ended after %s: timeout gives another more, background lets a server run", c.Timeout))
	}
	if got.OutOfMemory {
		r.Notes = append(r.Notes, "the environment's memory limit ended it")
	}
	if got.Reason != "" {
		r.Notes = append(r.Notes, got.Reason)
	}
	r.Notes = e.notes(r.Notes...)
	return r, nil
}

// inside is a path in the environment, and what it is in the clone; "" outside of that.
func inside(name string) (abs, tracked string) {
	if abs = path.Clean(name); !path.IsAbs(abs) {
		abs = path.Join(sandbox.CloneDir, name)
	}
	rest, ok := strings.CutPrefix(abs, sandbox.CloneDir+"/")
	if !ok || rest == ".git" || strings.HasPrefix(rest, ".git/") {
		return abs, ""
	}
	return abs, rest
}

// Read is a file.
func (e *mcpEnvironment) Read(ctx context.Context, name string, most int64) ([]byte, error) {
	if err := e.wake(ctx); err != nil {
		return nil, err
	}
	abs, _ := inside(name)
	f, err := e.sb.Files().Open(ctx, abs)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes: read a part of it by a command", name, most)
	}
	return b, err
}

// List is a folder.
func (e *mcpEnvironment) List(ctx context.Context, name string) ([]mcpserver.EnvironmentFile, error) {
	if err := e.wake(ctx); err != nil {
		return nil, err
	}
	abs, _ := inside(name)
	list, err := e.sb.Files().List(ctx, abs)
	if err != nil {
		return nil, err
	}
	all := make([]mcpserver.EnvironmentFile, 0, len(list))
	for _, i := range list {
		f := mcpserver.EnvironmentFile{Name: i.Name, Type: "file", Size: i.Size}
		switch {
		case i.Mode.IsDir():
			f.Type, f.Size = "folder", 0
		case i.Mode&fs.ModeSymlink != 0:
			f.Type, f.Size = "link", 0
		case !i.Mode.IsRegular():
			f.Type, f.Size = "other", 0
		}
		all = append(all, f)
	}
	return all, nil
}

// Write writes a file.
func (e *mcpEnvironment) Write(ctx context.Context, name string, content []byte, subject string) (mcpserver.EnvironmentChange, error) {
	return e.change(ctx, name, subject, func(abs string) error {
		return e.sb.Files().Write(ctx, abs, strings.NewReader(string(content)), sandbox.WriteOptions{Parents: true})
	})
}

// Delete deletes a file.
func (e *mcpEnvironment) Delete(ctx context.Context, name string) (mcpserver.EnvironmentChange, error) {
	return e.change(ctx, name, "Delete "+name, func(abs string) error { return e.sb.Files().Remove(ctx, abs) })
}

func (e *mcpEnvironment) change(ctx context.Context, name, subject string, do func(abs string) error) (c mcpserver.EnvironmentChange, err error) {
	if err := e.wake(ctx); err != nil {
		return c, err
	}
	abs, tracked := inside(name)
	if tracked != "" {
		if sub := e.b.Submodule(ctx, tracked); sub != "" {
			return c, fmt.Errorf("%s is in the submodule %s, of which nothing would be committed: work in an environment of that repository", tracked, text.Clean(sub))
		}
	}
	if err := do(abs); err != nil {
		return c, err
	}
	if c.Commit = e.save(ctx, sandbox.Ran{Subject: subject}); c.Commit == "" {
		why := "nothing is new in the branch: the file was so already, or git ignores it"
		if tracked == "" {
			why = "NOT TRACKED: " + abs + " is outside of the clone at " + sandbox.CloneDir + ", so no commit has it, and it is lost when the environment is made anew"
		}
		c.Notes = append(c.Notes, why)
	}
	c.Notes = e.notes(c.Notes...)
	return c, nil
}

// Update names anew what it is for.
func (e *mcpEnvironment) Update(ctx context.Context, title string) (mcpserver.EnvironmentInfo, error) {
	if err := e.b.Retitle(ctx, text.Runes(text.Words(text.Clean(title)), maxEnvTitle)); err != nil {
		return mcpserver.EnvironmentInfo{}, err
	}
	return e.Info(ctx)
}

// Checkpoint keeps the commits under a name, and where the kind can all files.
func (e *mcpEnvironment) Checkpoint(ctx context.Context, name string) (c mcpserver.EnvironmentCheckpoint, err error) {
	if err := e.wake(ctx); err != nil {
		return c, err
	}
	e.save(ctx, sandbox.Ran{Subject: "Save"})
	c.Commit, err = e.b.Checkpoint(ctx, name)
	if errors.Is(err, branch.ErrCheckpoint) {
		return c, &mcpserver.WrongError{Err: err}
	}
	if err != nil {
		return c, err
	}
	c.Tag = e.sb.Name() + "/" + name
	switch s, err := e.sb.Snapshot(ctx, name); {
	case err == nil:
		c.Snapshot = s.Name
		c.Notes = append(c.Notes, fmt.Sprintf("`sandbox-agent snapshot restore %s %s` brings all files back", e.sb.Name(), name))
	case errors.Is(err, sandbox.ErrUnsupported):
		c.Notes = append(c.Notes, "files that are not committed are not in it: this kind of sandbox has no snapshots")
	default:
		c.Notes = append(c.Notes, "files that are not committed are not in it: "+err.Error())
	}
	c.Notes = e.notes(c.Notes...)
	return c, nil
}

// Log is what `log` prints.
func (e *mcpEnvironment) Log(ctx context.Context) (string, error) {
	all, err := e.b.Log(ctx)
	out := text.NewEnds(maxEnvText)
	printLog(out, all)
	return string(out.Bytes()), err
}

// Diff is what `diff` prints.
func (e *mcpEnvironment) Diff(ctx context.Context) (string, error) {
	p, err := e.a.branchPlace(ctx, e.b)
	if err != nil {
		return "", wrongCall(err)
	}
	out := text.NewEnds(maxEnvText)
	err = p.Diff(ctx, out)
	return cmp.Or(string(out.Bytes()), "Nothing has changed.\n"), wrongCall(err)
}

// Rebuild makes it anew, and keeps the work.
func (e *mcpEnvironment) Rebuild(ctx context.Context, c mcpserver.EnvironmentConfig) (mcpserver.EnvironmentInfo, error) {
	none := mcpserver.EnvironmentInfo{}
	if err := e.wake(ctx); err != nil {
		return none, err
	}
	s, ports, err := changedSpec(e.sb.Spec(), c)
	if err != nil {
		return none, err
	}
	again, err := e.sb.Rebuild(ctx, s)
	if err != nil {
		return none, wrongCall(sandboxError(err))
	}
	e.sb = again
	e.log.Info("environment made anew", "id", e.sb.Name())
	if _, err := e.exposed(ctx, ports); err != nil {
		fmt.Fprintln(e.said, err)
	}
	i, err := e.Info(ctx)
	i.Notes = append([]string{"the environment was made anew: what is committed is there; files outside of " + sandbox.CloneDir + ", files that git ignores, the clone's own git state, and background commands are gone"}, i.Notes...)
	return i, err
}

// changedSpec is a spec with another configuration, and the ports of it to serve on this machine. An agent may narrow what is reached, and never widen it.
func changedSpec(s sandbox.Spec, c mcpserver.EnvironmentConfig) (sandbox.Spec, []int, error) {
	s.Env = slices.Clone(s.Env)
	var box *workorder.Spec
	if s.Box != nil {
		copied := *s.Box
		copied.Env, copied.Services = maps.Clone(copied.Env), slices.Clone(copied.Services)
		box, s.Box = &copied, &copied
	}
	if err := narrowed(&s, box, c); err != nil {
		return s, nil, err
	}
	if c.BaseImage != "" {
		if s.Runtime == sandbox.KindJail {
			return s, nil, wrong("base_image: a jail has this machine's programs; ask the user to start the server with --runtime box or container")
		}
		if s.Network != sandbox.NetworkFull {
			return s, nil, wrong("base_image: with network %s an image is the user's to choose", s.Network)
		}
		s.Image = c.BaseImage
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		s.Env = slices.DeleteFunc(s.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		if box != nil {
			delete(box.Env, name)
		}
		if v := c.Env[name]; v != nil {
			s.Env = append(s.Env, name+"="+*v)
		}
	}
	if c.SetupCommands != nil {
		if box == nil {
			return s, nil, wrong("setup_commands: runtime %s has none; run the commands by environment_run_cmd", s.Runtime)
		}
		box.Setup = *c.SetupCommands
	}
	ports, err := withService(s, box, c.Service)
	return s, ports, err
}

// narrowed changes what is reached.
func narrowed(s *sandbox.Spec, box *workorder.Spec, c mcpserver.EnvironmentConfig) error {
	order := []sandbox.Network{sandbox.NetworkNone, sandbox.NetworkRestricted, sandbox.NetworkFull}
	next := cmp.Or(sandbox.Network(c.Network), s.Network)
	switch at, to := slices.Index(order, s.Network), slices.Index(order, next); {
	case to < 0:
		return wrong("network %.40q: use full, restricted or none", c.Network)
	case to > at:
		return wrong("network %s: the environment has %s, and only the user may widen it, by `sandbox-agent network`", next, s.Network)
	case len(c.Allow) > 0 && next != sandbox.NetworkRestricted:
		return wrong("allow is for network restricted")
	}
	has := s.Allow
	if box != nil {
		has = slices.Concat(has, box.Network.Allow)
	}
	if s.Network == sandbox.NetworkRestricted {
		for _, rule := range c.Allow {
			if !slices.Contains(has, rule) {
				return wrong("allow %.80q: the environment reaches %s, and only the user may add to it", rule, strings.Join(has, ", "))
			}
		}
	}
	switch {
	case next != sandbox.NetworkRestricted:
		s.Allow = nil
	case len(c.Allow) > 0:
		s.Allow = c.Allow
		if box != nil {
			box.Network.Allow = nil
		}
	}
	s.Network = next
	return nil
}

// withService adds a service, whose ports are the box's own as well where nobody has them yet.
func withService(s sandbox.Spec, box *workorder.Spec, add *mcpserver.EnvironmentService) (served []int, err error) {
	switch {
	case add == nil:
		return nil, nil
	case box == nil:
		return nil, wrong("runtime %s has no services: ask the user to start the server with --runtime box", s.Runtime)
	case s.Network != sandbox.NetworkFull:
		return nil, wrong("with network %s services are the user's to choose", s.Network)
	case slices.ContainsFunc(box.Services, func(o workorder.Service) bool { return o.Name == add.Name }):
		return nil, wrong("service %.80s already exists", add.Name)
	}
	n := workorder.Service{Name: add.Name, Image: add.Image, Command: add.Command, Env: add.Env}
	for _, p := range add.Ports {
		port := strconv.Itoa(p)
		if !slices.ContainsFunc(box.Services, func(o workorder.Service) bool {
			return slices.ContainsFunc(o.Ports, func(has string) bool { return strings.HasPrefix(has, port+":") })
		}) {
			served, port = append(served, p), port+":"+port
		}
		n.Ports = append(n.Ports, port)
	}
	box.Services = append(box.Services, n)
	return served, nil
}
