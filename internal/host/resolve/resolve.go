// Package resolve makes a job from a command line: it finds the project, applies flags, checks the user's trust, opens a
// local repository and finds credentials.
package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/agentlogin"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Setting is a flag that overrides a key of the project.
type Setting struct{ Flag, Key string }

// Settings returns the settings in the order in which they apply.
func Settings() []Setting {
	return []Setting{
		{"repo", "repo"},
		{"branch", "branch"},
		{"network", "network"}, // before the rules, which only one of its modes allows
		{"allow", projects.KeyAllow},
		{"isolation", "isolation"},
		{"oci-runtime", "oci_runtime"},
		{"image", "image"},
		{"command", projects.KeyCommand}, // before the harness, which may need or refuse it
		{"harness", "harness"},
		{"author", "author"},
		{"timeout-minutes", "timeout_minutes"},
		{"max-budget-usd", "max_budget_usd"},
	}
}

// Flags are the settings of a run on a command line.
type Flags struct {
	Project       string // name or path; "" means the file in the named local repository or in the current directory
	ProjectsDir   string // a further directory of projects, or ""
	ProjectSource string // how an earlier command named the project; "" if this one names it
	// TaskBase is the base branch of an existing task. A project without a file is detected there, unless a flag names a branch.
	TaskBase string
	Values   map[string]string // by flag
	Sources  map[string]string // of the flags' values, such as the flag or a variable
	Out      string            // directory for the output; "" means the state directory
	// DryRun contacts only a remote whose project is detected, and also resolves an untrusted project.
	DryRun       bool
	Keep, Detach bool
	// Change, if not nil, changes the project after the settings were applied.
	Change func(*projects.Project)
}

func (s *Flags) gives(key string) bool {
	return slices.ContainsFunc(Settings(), func(k Setting) bool {
		_, given := s.Values[k.Flag]
		return given && k.Key == key
	})
}

// oneHarness refuses a command for a harness that has its own.
func (s *Flags) oneHarness() error {
	name, named := s.Values["harness"]
	if _, given := s.Values["command"]; !given || !named || name == workorder.HarnessCommand {
		return nil
	}
	return &projects.OptionError{
		Name: s.Sources["command"], Message: fmt.Sprintf("only the command harness accepts it, and %s selects %q", s.Sources["harness"], name),
		Hint: "remove one of them",
	}
}

// absolute returns the flags with an absolute path of the repository, because a project's own paths are relative to its directory.
func (s *Flags) absolute() (*Flags, error) {
	repo, given := s.Values["repo"]
	if !given {
		return s, nil
	}
	abs, err := git.AbsRepo(repo)
	if err != nil {
		return nil, err
	}
	c := *s
	c.Values = maps.Clone(s.Values)
	c.Values["repo"] = abs
	return &c, nil
}

// Resolver resolves one command line. It must not be used concurrently.
type Resolver struct {
	Credentials *credentials.Finder
	StateDir    func() (string, error) // has the user's trust decisions
	// Confirm asks the user to trust a file; nil refuses.
	Confirm func(context.Context, *UntrustedError) (bool, error)

	// ConfirmLogin asks the user whether a login of this machine may be used; nil refuses.
	ConfirmLogin func(context.Context, *agentlogin.Login) (bool, error)

	asked, askedLogin bool
}

// Resolved is the project, repository and job of a run.
type Resolved struct {
	Project   *projects.Project
	Found     *detect.Draft   // the detected project; nil if it has a file
	Local     *localrepo.Repo // nil if the repository is not on this machine
	Job       *job.Job        // set by Order
	Untrusted error           // refuses the project unless this is a dry run

	asRead     *projects.Project // before settle
	missing    error             // required secrets that are missing
	notes      []string          // decisions about the secrets
	warns      []string          // the surprising ones
	said       *Flags
	by         string            // how the project was named
	offBranch  bool              // set by FromBase if the run starts from a tag or commit of a local repository
	locals     []*localrepo.Repo // of the project's Repos; nil for those elsewhere
	trustedSum string            // the hash of the content that the user trusted, or "" for the user's own project
}

// Of returns the resolved run of the user's own project.
func Of(p *projects.Project) *Resolved { return &Resolved{Project: p, said: &Flags{}} }

// Find finds the project and a local repository, and checks trust.
func (f *Resolver) Find(ctx context.Context, flags *Flags) (*Resolved, error) {
	s, err := flags.absolute()
	if err != nil {
		return nil, err
	}
	p, inRepo, err := load(s)
	var draft *detect.Draft
	var local *localrepo.Repo
	if isNone(s, err) {
		p, draft, local, err = f.fromRepository(ctx, s, err)
	}
	if err != nil {
		return nil, err
	}
	if err := s.oneHarness(); err != nil {
		return nil, err
	}
	n := &naming{said: s, inRepo: inRepo}
	asks := f.asks(ctx, s, p)
	for _, k := range Settings() {
		value, given := s.Values[k.Flag]
		if !given {
			continue
		}
		if err := p.Override(k.Key, value, s.Sources[k.Flag]); err != nil {
			return nil, err
		}
	}
	g := &Resolved{Project: p, Found: draft, said: s, by: n.by(p)}
	if s.Change != nil {
		s.Change(p)
	}
	// Trust comes first: the following reads the repository and follows the project.
	if g.Untrusted = f.trusted(ctx, n, p, asks, p.Repo); g.Untrusted != nil && !s.DryRun {
		return nil, g.Untrusted
	}
	if n.theirs(ctx, p, p.Repo) {
		g.trustedSum = trust.Sum(p)
	}
	if p.Transport() == projects.TransportLocal {
		if g.Local = local; local == nil || local.Path != p.Repo {
			if g.Local, err = localrepo.Open(ctx, p.Repo); err != nil {
				return nil, err
			}
		}
		p.Repo = g.Local.Path
	}
	for i := range p.Repos {
		r, err := openFurther(ctx, &p.Repos[i])
		if err != nil {
			return nil, err
		}
		g.locals = append(g.locals, r)
	}
	was := *p
	g.asRead = &was
	if err := f.settle(ctx, g); err != nil {
		return nil, err
	}
	return g, nil
}

// Load finds only the project: the named one, or the file in the named local repository or in the current directory.
func Load(s *Flags) (*projects.Project, error) {
	p, _, err := load(s)
	return p, err
}

func load(s *Flags) (p *projects.Project, inRepo bool, err error) {
	opts, err := projects.SystemOptions()
	if err != nil {
		return nil, false, err
	}
	if s.ProjectsDir != "" {
		opts.Dirs = append([]string{s.ProjectsDir}, opts.Dirs...)
	}
	ref := s.Project
	if s.ProjectSource == taskstore.Detected {
		// A file that was written since then counts, but only in this directory.
		repo := s.Values["repo"]
		ref = filepath.Join(repo, projects.DefaultFile)
		t, err := projects.RepoTransport(repo)
		if err == nil && t == projects.TransportLocal || repo == "" {
			_, err = os.Stat(ref)
		} else { // a URL is not a path
			err = fs.ErrNotExist
		}
		if err != nil {
			return nil, false, &projects.NotFoundError{Looked: []string{ref}}
		}
	}
	if repo := s.Values["repo"]; ref == "" && repo != "" {
		if t, err := projects.RepoTransport(repo); err == nil && t == projects.TransportLocal {
			in := filepath.Join(repo, projects.DefaultFile)
			if _, err := os.Stat(in); err == nil {
				if ref, err = filepath.Abs(in); err != nil {
					return nil, false, fmt.Errorf("find project file: %w", err)
				}
				inRepo = true
			}
		}
	}
	p, err = projects.Load(ref, opts)
	return p, inRepo, err
}

// FromBase checks that a local repository has the starting point of a new task.
func (g *Resolved) FromBase(ctx context.Context) (err error) {
	if g.Local != nil {
		g.Project.Branch, err = g.Local.Base(ctx, g.Project.Branch)
		g.offBranch = err == nil && !g.Local.IsBranch(ctx, g.Project.Branch)
	}
	if err != nil {
		return err
	}
	for i, local := range g.locals {
		r := &g.Project.Repos[i]
		if g.Local != nil {
			err = errors.Join(err, g.hasPlace(ctx, r))
		}
		if local != nil {
			base, berr := local.Base(ctx, r.Branch)
			r.Branch, err = base, errors.Join(err, named(r, berr))
		}
	}
	return err
}

// hasPlace returns an error if the project's repository has a path where a further one is to be.
func (g *Resolved) hasPlace(ctx context.Context, r *workorder.OrderRepo) error {
	tree, err := g.Local.Tree(ctx, g.Project.Branch)
	if err != nil {
		return err
	}
	if _, err := fs.Stat(tree, r.Name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return exiterr.New(workorder.ExitInvalid, fmt.Errorf("repos.%s: %s has a path of that name itself", r.Name, g.Local.Path),
		"choose another name: the repository is cloned to "+r.Dir())
}

// openFurther opens a further repository on this machine; nil if it is elsewhere.
func openFurther(ctx context.Context, r *workorder.OrderRepo) (*localrepo.Repo, error) {
	if t, err := projects.RepoTransport(r.Repo); err != nil || t != projects.TransportLocal {
		return nil, named(r, err)
	}
	local, err := localrepo.Open(ctx, r.Repo)
	if err == nil {
		r.Repo = local.Path
	}
	return local, named(r, err)
}

func named(r *workorder.OrderRepo, err error) error {
	if err == nil {
		return nil
	}
	return exiterr.New(exiterr.Code(err), fmt.Errorf("repos.%s: %w", r.Name, err), exiterr.Hint(err))
}

// TargetFree checks that a local repository can have the branch of the job's new task.
func (g *Resolved) TargetFree(ctx context.Context) error {
	var errs []error
	if g.Local != nil {
		errs = append(errs, g.Local.Free(ctx, g.Job.Order.TargetBranch))
	}
	for i, local := range g.locals {
		if local != nil {
			errs = append(errs, named(&g.Project.Repos[i], local.Free(ctx, g.Job.Order.TargetBranch)))
		}
	}
	return errors.Join(errs...)
}

// Order makes the job.
func (g *Resolved) Order(in projects.OrderInput) error {
	p := g.Project
	order, err := p.Order(in)
	if err != nil {
		return exiterr.New(workorder.ExitInvalid, err, "")
	}
	g.Job = &job.Job{
		Order: order, Keep: g.said.Keep, Detach: g.said.Detach, Request: g.request(), Notes: g.notes,
		Warnings: slices.Clone(g.warns),
	}
	if g.Local != nil {
		g.Job.LocalRepo = g.Local.Path
		if order.PR != nil && !credentials.HasForge(order.Repo, order.PR) {
			g.Job.Order.PR = nil
			g.Job.Warnings = append(g.Job.Warnings, "no pull request will be opened: the repository is a local path without a forge; pr.api_url "+
				"and pr.repository in the project file name one")
		}
		if order.PR != nil && g.offBranch {
			g.Job.Order.PR = nil
			g.Job.Warnings = append(g.Job.Warnings, "no pull request will be opened: it needs a base branch, and "+order.Branch+" is no branch")
		}
		if names := uncommitted(g.Local, p.File); names != "" && !order.Mode.Continues() {
			g.Job.Warnings = append(g.Job.Warnings, "uncommitted changes in "+g.Local.Path+" ("+names+") are not part of the run: it starts from "+
				"the last commit of "+order.Branch)
		}
	}
	for i, local := range g.locals {
		if local == nil || order.Mode.Continues() {
			continue
		}
		if names := uncommitted(local, ""); names != "" {
			g.Job.Warnings = append(g.Job.Warnings, fmt.Sprintf("uncommitted changes in %s (%s) are not part of the run: repos.%s starts from its "+
				"last commit", local.Path, names, p.Repos[i].Name))
		}
	}
	if g.said.Out != "" {
		if g.Job.OutDir, err = filepath.Abs(g.said.Out); err != nil {
			return fmt.Errorf("find output directory: %w", err)
		}
	}
	return nil
}

// request has the settings that the next attempt uses.
func (g *Resolved) request() taskstore.Request {
	req := taskstore.Request{ProjectFile: g.said.Project, ProjectBy: g.by, Overrides: map[string]string{}}
	if abs, err := filepath.Abs(g.Project.File); err == nil && g.Found == nil {
		if _, err := os.Stat(abs); err == nil {
			req.ProjectFile = abs
		}
	}
	maps.Copy(req.Overrides, g.said.Values)
	if _, given := req.Overrides["repo"]; given || g.Found != nil {
		req.Overrides["repo"] = g.Project.Repo // absolute
	}
	return req
}

// uncommitted names some changes that the run will not have, except the project file, which is read from the working tree.
func uncommitted(r *localrepo.Repo, projectFile string) string {
	own := ""
	if abs, err := filepath.Abs(projectFile); err == nil {
		if target, err := filepath.EvalSymlinks(abs); err == nil {
			abs = target
		}
		own, _ = filepath.Rel(r.Path, abs) // "" if it is elsewhere
	}
	names := slices.DeleteFunc(slices.Clone(r.Changed), func(n string) bool {
		return n == own || strings.HasSuffix(n, "/") && strings.HasPrefix(own, n)
	})
	const enough = 3
	if more := len(names) - enough; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:enough], ", "), more)
	}
	return strings.Join(names, ", ")
}

// fromRepository detects a project in the files of a repository, at the commit that the run starts from. It returns none,
// the error of the search for a project file, if there is no repository. A repository of this machine is returned, too.
func (f *Resolver) fromRepository(ctx context.Context, s *Flags, none error) (*projects.Project, *detect.Draft, *localrepo.Repo, error) {
	at := s.Values["repo"]
	if at == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, nil, nil, fmt.Errorf("find the current directory: %w", err)
		}
		at = dir
	} else if t, err := projects.RepoTransport(at); err != nil || t == projects.TransportNone {
		return nil, nil, nil, none
	} else if t != projects.TransportLocal {
		p, draft, err := f.fromRemote(ctx, at, cmp.Or(s.Values["branch"], s.TaskBase))
		return p, draft, nil, err
	}
	if !inRepository(at) {
		return nil, nil, nil, exiterr.New(workorder.ExitNoProject, fmt.Errorf("%w; and %s is not in a git repository", none, at),
			"go to a repository, or run `git init` here and commit; --repo takes a path or a URL, --project a project file")
	}
	repo, err := localrepo.Open(ctx, at)
	if err != nil {
		return nil, nil, nil, err
	}
	base, err := repo.Base(ctx, cmp.Or(s.Values["branch"], s.TaskBase))
	if err != nil {
		return nil, nil, nil, err
	}
	commit, err := repo.Commit(ctx, base)
	if err != nil {
		return nil, nil, nil, err
	}
	tree, err := repo.Tree(ctx, commit)
	if err != nil {
		return nil, nil, nil, err
	}
	p, draft, err := fromTree(tree, filepath.Base(repo.Path), repo.Path, repo.Path)
	return p, draft, repo, err
}

// fromTree detects a project in files. name is the repository's, where describes the files, and relative paths count from dir.
func fromTree(tree fs.FS, name, where, dir string) (*projects.Project, *detect.Draft, error) {
	draft := detect.Detect(tree, name)
	p, err := projects.Detected(dir, []byte(draft.YAML()))
	if err != nil {
		return nil, nil, fmt.Errorf("detect a project in %s: %w", where, err)
	}
	// No draft has such a key, unless detection has a bug.
	if asks := Requests(p); len(asks) > 0 {
		return nil, nil, exiterr.New(workorder.ExitInvalid,
			fmt.Errorf("detect a project in %s: it requests %s (%s), which a detected project may not", where, asks[0].Key,
				text.Printable(asks[0].Value)), "write a project file with `sandbox-agent project init`, and review it")
	}
	return p, draft, nil
}

// Requests lists what only the user may grant. A project that no person wrote must request nothing.
func Requests(p *projects.Project) []trust.Permission {
	return trust.Permissions(p, trust.UserOverrides{
		Gives: func(string) bool { return false },
		Own:   func(string) bool { return true },
	})
}

// inRepository reports whether a directory is in a working tree or is a bare repository.
func inRepository(dir string) bool {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(abs, "objects")); err == nil {
		return true
	}
	for ; ; abs = filepath.Dir(abs) {
		if _, err := os.Stat(filepath.Join(abs, ".git")); err == nil {
			return true
		}
		if abs == filepath.Dir(abs) {
			return false
		}
	}
}

// isNone reports whether no project was named and none was found.
func isNone(s *Flags, err error) bool {
	e, none := errors.AsType[*projects.NotFoundError](err)
	return none && e.Ref == "" && s.Project == ""
}

// fromRemote detects a project in the last commit of a remote's branch, in a temporary directory.
func (f *Resolver) fromRemote(ctx context.Context, remote, branch string) (_ *projects.Project, _ *detect.Draft, err error) {
	if branch != "" && !workorder.ValidRefName(branch) {
		return nil, nil, exiterr.New(workorder.ExitUsage, fmt.Errorf("--branch %q is not a valid branch name", branch), "")
	}
	dir, err := os.MkdirTemp("", "sandbox-agent-remote-")
	if err != nil {
		return nil, nil, fmt.Errorf("look at remote %s: %w", credentials.Redacted(remote), err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ref, err := f.Credentials.Tip(ctx, remote, branch, dir)
	if err != nil {
		return nil, nil, err
	}
	repo := localrepo.Repo{Path: dir, Bare: true}
	tree, err := repo.Tree(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	shown := credentials.Redacted(remote)
	if _, err := fs.Stat(tree, projects.DefaultFile); err == nil {
		return nil, nil, exiterr.New(workorder.ExitNoProject, fmt.Errorf("%s has a project file, %s, which is used only from a clone: it may "+
			"request more than the repository's code may do, and you trust it by its path", shown, projects.DefaultFile),
			"`git clone "+shown+"`, and run `sandbox-agent create` there")
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, nil, fmt.Errorf("find the current directory: %w", err)
	}
	return fromTree(tree, strings.TrimSuffix(path.Base(strings.TrimRight(shown, "/")), ".git"), shown, here)
}
