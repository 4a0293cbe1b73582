package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/internal/next"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// untrustedError refuses a project file that came with a repository.
type untrustedError struct {
	File    string      `json:"file"`
	Asks    []trust.Ask `json:"asks"`
	Changed bool        `json:"changed"` // another content of it was trusted
}

func (e *untrustedError) Error() string {
	var keys []string
	for _, a := range e.Asks {
		keys = append(keys, a.Key+" ("+a.Value+")")
	}
	why := "you have not trusted it"
	if e.Changed {
		why = "it has changed since you trusted it"
	}
	return fmt.Sprintf("the project file %s asks for more than its repository's code may do in the sandbox, and %s: %s", e.File, why, strings.Join(keys, ", "))
}

// ExitCode is the exit code of the CLI for this error.
func (e *untrustedError) ExitCode() int { return workorder.ExitInvalid }

// trustCommand is what a user runs who trusts the file.
func (e *untrustedError) trustCommand() string {
	return next.Shell("sandbox-agent", "project", "trust", e.File)
}

// How a task's project was named, as its record has it.
const (
	projectNamed = "named" // the user's own word: a path outside of repositories, or a name in one of the user's own folders
	projectFound = "found" // in the current folder, or in a repository
	// projectUnsaid is that of records of older versions.
	projectUnsaid = "unsaid"
)

// foundBy says whose word the project's file is. Who names a path in somebody's repository may not have read what lies there, and
// nothing that stands in the file has a say in this.
func foundBy(o *runOptions, p *projects.Project) string {
	switch {
	case p.Path() == "":
		return projectNamed
	case p.Found, o.foundInRepo, o.projectBy == projectFound:
		return projectFound
	case o.projectBy == projectNamed, o.projectBy == "" && !p.ByPath:
		return projectNamed
	case len(trust.Around(p.Path())) > 0:
		return projectFound
	}
	return projectNamed
}

// ownRepo reports for repositories whether they are the one that the file is of. A file that a link leads out to is of no remote.
func ownRepo(ctx context.Context, file string) func(repo string) bool {
	return func(repo string) bool {
		t, err := projects.RepoTransport(repo)
		if err != nil {
			return false
		}
		top := trust.Home(file)
		if t == projects.TransportLocal {
			top = trust.Top(filepath.Dir(file)) // where a path in it begins
		}
		if t == projects.TransportLocal && top == "" {
			return trust.Inside(repo, filepath.Dir(file))
		}
		return top != "" && isRepo(ctx, top, repo)
	}
}

// isRepo reports whether a repository is the one at top, as a folder or as one of the remotes that it names.
func isRepo(ctx context.Context, top, repo string) bool {
	if t, err := projects.RepoTransport(repo); err != nil {
		return false
	} else if t == projects.TransportLocal {
		return trust.Top(repo) == top // not the one around it, nor one within
	}
	return slices.ContainsFunc(localrepo.Remotes(ctx, top), func(url string) bool { return trust.SameRemote(url, repo) })
}

// isShown reports whether the file's repository is shown to be a clone of the remote that it calls its own: it has a commit that the
// remote has. The maker of an archive can write the name of a private remote into its .git/config, and has none of its commits.
// Where the user has no credential for the remote, the claim gains nothing.
func isShown(ctx context.Context, a *App, file, remote string) (bool, error) {
	find := credentials.New(a.Getenv)
	cred, err := find.Git(ctx, remote)
	if err != nil || cred == nil {
		return err == nil, err
	}
	tips, err := find.Tips(ctx, remote, cred)
	return err == nil && localrepo.Holds(ctx, trust.Home(file), tips), err
}

// theirs reports whether a project came with a repository, so that its file is not the user's own word. repo is the task's.
func theirs(ctx context.Context, o *runOptions, p *projects.Project, repo string) bool {
	file := p.Path()
	if file == "" {
		return false
	}
	// Also a user's own folder may lie in the repository that the task is about.
	return foundBy(o, p) != projectNamed || repo != "" && slices.ContainsFunc(trust.Around(file), func(top string) bool { return isRepo(ctx, top, repo) })
}

// trusted refuses a project that came with a repository and asks for more than its code may do in the box, unless the user said
// yes to just that. asks are those of the file as it was read, repo is the task's.
func (o *runOptions) trusted(ctx context.Context, a *App, p *projects.Project, asks []trust.Ask, repo string) error {
	file := p.Path()
	if len(asks) == 0 || !theirs(ctx, o, p, repo) {
		return nil
	}
	st, err := a.store()
	if err != nil {
		return err
	}
	book := trust.Open(st.Dir())
	was, err := book.Look(file)
	if err != nil {
		return fault.New(workorder.ExitInvalid, err, "remove that file, and trust the project anew")
	}
	sum := trust.Sum(p)
	covered := func() bool { return len(asks) == 0 || was != nil && was.Sum == sum && was.Covers(asks) }
	if covered() {
		return nil
	}
	if i := slices.IndexFunc(asks, func(k trust.Ask) bool { return k.Claim }); i >= 0 {
		ok := o.dryRun // a rehearsal contacts nothing
		if !ok {
			if ok, err = isShown(ctx, a, file, asks[i].Value); err != nil {
				return err
			}
		}
		if ok {
			asks = slices.Delete(slices.Clone(asks), i, i+1)
		}
		if covered() {
			return nil
		}
	}
	no := &untrustedError{file, asks, was != nil}
	if !o.dryRun && !o.json && a.person() && !o.askedTrust {
		o.askedTrust = true // once
		yes, err := askTrust(ctx, a, no)
		if err != nil {
			return err
		}
		if yes {
			return book.Trust(file, sum, asks, time.Now())
		}
	}
	return fault.New(workorder.ExitInvalid, no, "look at it, then trust it as it is now: `"+no.trustCommand()+"`")
}

// person reports whether somebody can be asked.
func (a *App) person() bool {
	in, ok := a.Stdin.(*os.File)
	return ok && isTerminal(in) && isTerminal(a.Stderr)
}

func askTrust(ctx context.Context, a *App, e *untrustedError) (bool, error) {
	showAsks(a.Stderr, e.File, e.Asks)
	fmt.Fprint(a.Stderr, "Trust this file, as it is now? [y/N] ")
	line, err := bufio.NewReader(a.stdin(ctx)).ReadString('\n')
	if ctx.Err() != nil {
		return false, &ending{exitLeft}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("ask for trust: %w", err)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

func showAsks(w io.Writer, file string, asks []trust.Ask) {
	fmt.Fprintf(w, "%s asks for more than its repository's code may do in the sandbox:\n", render.Clean(file))
	for _, k := range asks {
		fmt.Fprintf(w, "  %s: %s\n      %s\n", render.Clean(k.Key), render.Clean(k.Value), render.Clean(k.Why))
	}
}

// asks is what the file of a command asks for, of which its flags take some back.
func (o *runOptions) asks(ctx context.Context, a *App, p *projects.Project) []trust.Ask {
	file := p.Path()
	if file == "" {
		return nil
	}
	u := trust.User{Own: ownRepo(ctx, file), Token: a.Getenv(credentials.GitToken) != "", Gives: func(key string) bool {
		return slices.ContainsFunc(settings, func(s struct{ flag, key string }) bool {
			_, given := o.sources[s.flag]
			return given && s.key == key
		})
	}}
	repo := p.Repo
	if u.Gives("repo") {
		repo, u.Repo = o.repo, o.repo
	}
	if t, err := projects.RepoTransport(repo); err == nil && t == projects.TransportLocal && u.Own(repo) {
		u.Borrows = localrepo.Borrowed(ctx, repo)
	}
	if u.Gives("network") {
		u.Network = workorder.NetworkMode(o.network)
	}
	return trust.Asks(p, u)
}

// trustedBox is trusted for a command that takes of the project only how a box is held.
func trustedBox(ctx context.Context, a *App, c *cacheOptions, p *projects.Project) error {
	o := &runOptions{json: c.json, sources: map[string]string{}}
	for flag, value := range map[string]string{"image": c.image, "isolation": c.isolation, "oci-runtime": c.ociRuntime} {
		if value != "" {
			o.sources[flag] = "--" + flag
		}
	}
	asks := slices.DeleteFunc(o.asks(ctx, a, p), func(k trust.Ask) bool {
		return !slices.Contains([]string{"image", "isolation", "oci_runtime"}, k.Key)
	})
	return o.trusted(ctx, a, p, asks, p.Repo)
}
