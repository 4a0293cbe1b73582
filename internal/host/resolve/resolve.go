// Package resolve makes a job of a command line: it finds the project, applies the flags, checks the user's trust in
// the project's file, opens a repository of this machine and finds credentials. It prints nothing.
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

// Setting is a flag that replaces a key of the project.
type Setting struct{ Flag, Key string }

// Settings lists them in the order in which they are applied to the project.
func Settings() []Setting {
	return []Setting{
		{"repo", "repo"},
		{"branch", "branch"},
		{"network", "network"}, // before the rules, which only one of its modes allows
		{"allow", projects.KeyAllow},
		{"isolation", "isolation"},
		{"oci-runtime", "oci_runtime"},
		{"image", "image"},
		{"command", projects.KeyCommand}, // before the harness, which needs it or does not take it
		{"harness", "harness"},
		{"author", "author"},
		{"timeout-minutes", "timeout_minutes"},
		{"max-budget-usd", "max_budget_usd"},
	}
}

// Flags are the settings of a run on a command line.
type Flags struct {
	// Project is a name, or the path of a file. If empty, it is the file in the named local repository, else in the current folder.
	Project       string
	ProjectsDir   string // a further folder to look for projects in; may be empty
	ProjectSource string // how an earlier command named the project; empty if this one names it
	// TaskBase is the base branch of a task that exists. Without a project file, its files make the project unless a flag names a branch.
	TaskBase string
	// Values are those of the given settings, by flag.
	Values map[string]string
	// Sources are the sources of the flags' values, such as the flag or a variable.
	Sources map[string]string
	Out     string // folder for the output; if empty the state folder
	// DryRun contacts nothing but a remote whose files take a project file's place, and also resolves an untrusted project.
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
		Name: s.Sources["command"], Message: fmt.Sprintf("it is only for the command harness, and %s says %q", s.Sources["harness"], name),
		Hint: "keep one of the two",
	}
}

// absolute is the flags with a path of a repository that is good from every folder: a project's own paths begin in its folder.
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

// Resolver resolves the command line of one command. It must not be used by two goroutines at a time.
type Resolver struct {
	Credentials *credentials.Finder
	// StateDir is the folder with the user's trust decisions.
	StateDir func() (string, error)
	// Confirm asks the user to trust a file; nil if there is no user to ask.
	Confirm func(context.Context, *UntrustedError) (bool, error)

	// ConfirmLogin asks the user whether a login of this machine may be used. Nil means that no user can be asked.
	ConfirmLogin func(context.Context, *agentlogin.Login) (bool, error)

	asked, askedLogin bool
}

// Resolved is the result: the project, repository and job of a run.
type Resolved struct {
	Project *projects.Project
	Found   *detect.Draft   // what the project was made of; nil if it has a file
	Local   *localrepo.Repo // nil if the repository is not on this machine
	Job     *job.Job        // set by Order
	// Untrusted is the error that refuses the project when this is not a rehearsal.
	Untrusted error

	asRead  *projects.Project // the project before its secrets were settled
	missing error             // the secrets that are not there, and have to be
	notes   []string          // decisions about the secrets
	warns   []string          // those of them that may surprise
	said    *Flags
	by      string // how the project was named
	// offBranch is set by FromBase where the run starts from a tag or commit of a repository of this machine.
	offBranch bool
	// trustedSum is the hash of the content that the user trusted, of a project that came with a repository; empty if the
	// project is the user's own.
	trustedSum string
}

// Of is the resolved run of the user's own project, as it is.
func Of(p *projects.Project) *Resolved { return &Resolved{Project: p, said: &Flags{}} }

// Find finds the project and a repository on this machine.
func (f *Resolver) Find(ctx context.Context, flags *Flags) (*Resolved, error) {
	s, err := flags.absolute()
	if err != nil {
		return nil, err
	}
	p, inRepo, err := load(s)
	var draft *detect.Draft
	if isNone(s, err) {
		p, draft, err = f.fromRepository(ctx, s, err)
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
	// Trust comes first: everything below reads the repository and follows the project.
	if g.Untrusted = f.trusted(ctx, n, p, asks, p.Repo); g.Untrusted != nil && !s.DryRun {
		return nil, g.Untrusted
	}
	if n.theirs(ctx, p, p.Repo) {
		g.trustedSum = trust.Sum(p)
	}
	if p.Transport() == projects.TransportLocal {
		if g.Local, err = localrepo.Open(ctx, p.Repo); err != nil {
			return nil, err
		}
		p.Repo = g.Local.Path
	}
	was := *p
	g.asRead = &was
	if err := f.settle(ctx, g); err != nil {
		return nil, err
	}
	return g, nil
}

// Load finds only the project: the named one, else the file in the named local repository, else the one in the current folder.
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
		opts.Folders = append([]string{s.ProjectsDir}, opts.Folders...)
	}
	ref := s.Project
	if s.ProjectSource == taskstore.Detected {
		// A file that was written since counts, and one of another folder does not.
		repo := s.Values["repo"]
		ref = filepath.Join(repo, projects.DefaultFile)
		t, err := projects.RepoTransport(repo)
		if err == nil && t == projects.TransportLocal || repo == "" {
			_, err = os.Stat(ref)
		} else { // a URL is no folder, whatever lies here by that name
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

// FromBase makes sure that a repository on this machine has the starting point of a new task.
func (g *Resolved) FromBase(ctx context.Context) (err error) {
	if g.Local != nil {
		g.Project.Branch, err = g.Local.Base(ctx, g.Project.Branch)
		g.offBranch = err == nil && !g.Local.IsBranch(ctx, g.Project.Branch)
	}
	return err
}

// TargetFree makes sure that a repository on this machine can have the branch of the job's new task.
func (g *Resolved) TargetFree(ctx context.Context) error {
	if g.Local == nil {
		return nil
	}
	return g.Local.Free(ctx, g.Job.Order.TargetBranch)
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
			g.Job.Warnings = append(g.Job.Warnings, "no pull request will be opened: the repository is a path, which has no forge; pr.api_url "+
				"and pr.repository in the project file name one")
		}
		if order.PR != nil && g.offBranch {
			g.Job.Order.PR = nil
			g.Job.Warnings = append(g.Job.Warnings, "no pull request will be opened: it would go into a branch, and "+order.Branch+" is none")
		}
		if names := uncommitted(g.Local, p.File); names != "" && !order.Mode.Continues() {
			g.Job.Warnings = append(g.Job.Warnings, "uncommitted changes in "+g.Local.Path+" ("+names+") are not part of the run: it starts from "+
				"the last commit of "+order.Branch)
		}
	}
	if g.said.Out != "" {
		if g.Job.OutDir, err = filepath.Abs(g.said.Out); err != nil {
			return fmt.Errorf("find output directory: %w", err)
		}
	}
	return nil
}

// request has the settings that the next attempt takes over.
func (g *Resolved) request() taskstore.Request {
	req := taskstore.Request{ProjectFile: g.said.Project, ProjectBy: g.by, Overrides: map[string]string{}}
	if abs, err := filepath.Abs(g.Project.File); err == nil && g.Found == nil {
		if _, err := os.Stat(abs); err == nil {
			req.ProjectFile = abs
		}
	}
	maps.Copy(req.Overrides, g.said.Values)
	if _, given := req.Overrides["repo"]; given || g.Found != nil {
		req.Overrides["repo"] = g.Project.Repo // in the form that works from every folder
	}
	return req
}

// uncommitted names some of the changes that the run will not have. The project file does
// not count: it is read from the work tree.
func uncommitted(r *localrepo.Repo, projectFile string) string {
	own := ""
	if abs, err := filepath.Abs(projectFile); err == nil {
		if target, err := filepath.EvalSymlinks(abs); err == nil {
			abs = target
		}
		own, _ = filepath.Rel(r.Path, abs) // empty if it is elsewhere
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

// fromRepository makes a project of the files of a repository, at the commit that the run starts from. none is the error of looking for
// a project file, and is returned where there is no such repository either.
func (f *Resolver) fromRepository(ctx context.Context, s *Flags, none error) (*projects.Project, *detect.Draft, error) {
	at := s.Values["repo"]
	if at == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, nil, fmt.Errorf("find the current directory: %w", err)
		}
		at = dir
	} else if t, err := projects.RepoTransport(at); err != nil || t == projects.TransportNone {
		return nil, nil, none
	} else if t != projects.TransportLocal {
		return f.fromRemote(ctx, at, cmp.Or(s.Values["branch"], s.TaskBase))
	}
	if !inRepository(at) {
		return nil, nil, exiterr.New(workorder.ExitNoProject, fmt.Errorf("%w; and %s is in no git repository", none, at),
			"go to a repository, or make this directory one (git init, and a first commit); --repo takes a path or a URL, --project a project file")
	}
	repo, err := localrepo.Open(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	base, err := repo.Base(ctx, cmp.Or(s.Values["branch"], s.TaskBase))
	if err != nil {
		return nil, nil, err
	}
	commit, err := repo.Commit(ctx, base)
	if err != nil {
		return nil, nil, err
	}
	tree, err := repo.Tree(ctx, commit)
	if err != nil {
		return nil, nil, err
	}
	return fromTree(ctx, tree, filepath.Base(repo.Path), repo.Path, repo.Path)
}

// fromTree makes a project of files. name is the repository's, where says what has them, and dir is where relative paths begin.
func fromTree(ctx context.Context, tree fs.FS, name, where, dir string) (*projects.Project, *detect.Draft, error) {
	draft := detect.Detect(ctx, tree, name)
	p, err := projects.Detected(dir, []byte(draft.YAML()))
	if err != nil {
		return nil, nil, fmt.Errorf("make a project of what %s has: %w", where, err)
	}
	// A draft has no such key; a repository that brings one into it found a hole.
	if asks := Requests(p); len(asks) > 0 {
		return nil, nil, exiterr.New(workorder.ExitInvalid,
			fmt.Errorf("make a project of what %s has: it asks for %s (%s), which no finding may", where, asks[0].Key,
				text.Printable(asks[0].Value)), "write a project file: `sandbox-agent project init`, and look it over")
	}
	return p, draft, nil
}

// Requests lists what a project asks for that only the user may grant. A project that no person wrote must ask for nothing.
func Requests(p *projects.Project) []trust.Permission {
	return trust.Permissions(p, trust.UserOverrides{
		Gives: func(string) bool { return false },
		Own:   func(string) bool { return true },
	})
}

// inRepository reports whether a folder lies in a work tree, or is a bare repository.
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

// fromRemote makes a project of the files of a remote's branch: its last commit lies in a temporary folder meanwhile.
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
		return nil, nil, exiterr.New(workorder.ExitNoProject, fmt.Errorf("%s has a project file, %s, which counts from a clone alone: it may "+
			"ask for more than the repository's code may do, and trust goes by its place", shown, projects.DefaultFile),
			"`git clone "+shown+"`, and run `sandbox-agent create` there")
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, nil, fmt.Errorf("find the current directory: %w", err)
	}
	return fromTree(ctx, tree, strings.TrimSuffix(path.Base(strings.TrimRight(shown, "/")), ".git"), shown, here)
}
