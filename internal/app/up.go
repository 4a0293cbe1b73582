package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// UpRequest asks for a sandbox.
type UpRequest struct {
	// Spec describes the sandbox. If it has no name, Up makes one of its title.
	Spec sandbox.Spec
	// Runtime is the name of a runtime; "" for the one of the environment, or the one that fits.
	Runtime string
	// Fallback is FallbackHost for a sandbox without isolation where none is available; "" for what the setting says.
	Fallback string
	// Project is a name, or the path of a project file. Repo is a repository to clone, and Ref what to start from.
	Project, Repo, Ref string
	Ports              []Port // to publish
	Trust              Trust  // applied to Spec already
}

// Upped is a sandbox that Up has created.
type Upped struct {
	Spec    sandbox.Spec
	Ports   []Port
	Runtime string   // for a person
	Notes   []string // that a person should know
}

// MarshalJSON implements json.Marshaler. Embedding the spec would drop the endpoints, since the spec encodes itself.
func (u Upped) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(u.Spec)
	if err != nil || len(u.Ports) == 0 {
		return b, err
	}
	endpoints, err := json.Marshal(Addresses(u.Ports))
	if err != nil {
		return nil, err
	}
	return slices.Concat(bytes.TrimSuffix(b, []byte("}")), []byte(`,"endpoints":`), endpoints, []byte("}")), nil
}

// Up creates a sandbox, publishes its ports and prepares it for its first command.
func (b Sandboxes) Up(ctx context.Context, r UpRequest) (u Upped, err error) {
	m, err := b.Manager(false)
	if err != nil {
		return u, err
	}
	defer m.Close()
	s := r.Spec
	errs := []error{CheckFallback(b.Env, r.Fallback, r.Runtime)}
	var changes []func() string
	for _, path := range reposOf(s, r.Repo) {
		warning, err := uncommitted(ctx, path)
		changes, errs = append(changes, warning), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return u, err
	}
	var sb *sandbox.Sandbox
	if r.Repo == "" && r.Project == "" && s.Worktree == "" {
		sb, err = createSandbox(ctx, b, m, s, r.Runtime, r.Fallback)
	} else if s.Runtime, err = b.Runtime(r.Runtime); err == nil {
		if err = b.complete(ctx, r, &s); err == nil {
			sb, err = createNamed(ctx, b, m, s)
		} else {
			noteFailed(b.Env, s.Name, err)
		}
	}
	if errors.Is(err, sandbox.ErrNotFound) {
		return u, NotFound(err, "list the engine's images with: docker images")
	}
	if err != nil {
		return u, SandboxError(err)
	}
	defer sb.Close()
	for _, f := range changes {
		if warning := f(); warning != "" {
			b.Warn(warning)
		}
	}
	if len(r.Ports) > 0 {
		if u.Ports, err = b.Endpoints().Add(ctx, sb.Name(), r.Ports); err != nil {
			clean, cancel := Outlast(ctx)
			defer cancel()
			noteFailed(b.Env, sb.Name(), err)
			return u, errors.Join(err, sb.Remove(clean, sandbox.RemoveOptions{Discard: true, DiscardBranch: true}))
		}
	}
	if err := b.Settle(ctx, sb); err != nil {
		b.Warn(err.Error())
	}
	warnOfRoots(b.Env, sb)
	if s := sb.Spec(); s.Network == sandbox.NetworkRestricted && len(s.Allow) == 0 {
		b.Warn("the network is restricted and no rule allows a host: add one with --allow HOST, or network.allow in the project file")
	}
	b.Save(ctx, sb, sandbox.CommandRecord{})
	u.Spec, u.Runtime = sb.Spec(), RuntimeText(sb)
	if note := networkNote(sb); note != "" {
		u.Notes = []string{note}
	}
	return u, nil
}

// noteFailed adds to the history that a sandbox was not created.
func noteFailed(e *Env, name string, err error) {
	if s, serr := e.Registry(); serr == nil && sandbox.ValidName(name) {
		// It does not replace the error, which is shown.
		_ = s.AppendEvent(sandboxstore.Event{At: time.Now().UTC(), Sandbox: name, Event: sandboxstore.EventFailed, Detail: err.Error()})
	}
}

// complete completes a spec with the repository or project that a sandbox is made of.
func (b Sandboxes) complete(ctx context.Context, r UpRequest, s *sandbox.Spec) (err error) {
	switch own := s.Runtime == sandbox.RuntimeContainer || s.Runtime == sandbox.RuntimeJail; {
	case own && r.Repo != "" && r.Project == "":
		s.Repo, s.Ref = r.Repo, r.Ref // only its commits are used
	case s.Worktree != "":
		if r.Project != "" {
			err = b.ApplyProject(ctx, s, r.Project, "", "")
		}
		s.Ref = r.Ref
	default:
		err = b.ApplyProject(ctx, s, r.Project, r.Repo, r.Ref)
	}
	if err == nil {
		s.Author, err = commitAuthor(b.Env, s.Author)
	}
	if err == nil && s.Runtime == sandbox.RuntimeContainer && s.Image == "" {
		s.Image, err = containerImage(ctx, b)
	}
	if err == nil {
		err = r.Trust.checkSecrets(ctx, b, *s)
	}
	return err
}

// reposOf returns the repositories of a sandbox that is made of repo or of those of its spec.
func reposOf(s sandbox.Spec, repo string) []string {
	all := []string{cmp.Or(s.Worktree, repo)}
	for _, r := range s.Repos {
		all = append(all, r.Repo)
	}
	return all
}

// commitAuthor returns who commits: the one that is given, or that of config.yaml; "" for that of git.
func commitAuthor(e *Env, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	settings, err := statedir.LoadSettings(e.Getenv)
	return settings.Author, exiterr.New(workorder.ExitInvalid, err, "")
}

// maxUncommitted is how many uncommitted files are named.
const maxUncommitted = 5

// uncommitted looks for uncommitted changes in a local repository, or returns an error if the directory is in none. The function that
// it returns waits for the answer: a text that names changes, or "".
func uncommitted(ctx context.Context, path string) (warning func() string, err error) {
	dir := localDir(path)
	if dir == "" {
		return func() string { return "" }, nil
	}
	if st, err := os.Stat(dir); err == nil && st.IsDir() && localrepo.RepoRoot(dir) == "" {
		return nil, exiterr.New(workorder.ExitNoProject, fmt.Errorf("%s is not in a git repository", text.Clean(dir)),
			"go to one, or make one (git init, and a first commit); or work on the directory itself: sandbox-agent up NAME --workspace "+
				text.Shell(path))
	}
	found := make(chan string, 1)
	go func() {
		defer close(found)
		if repo, err := localrepo.Open(ctx, dir); err == nil && len(repo.Changed) > 0 { // another error ends the creation
			found <- fmt.Sprintf("uncommitted changes of %s are not in the sandbox: %s; commit them first if the work needs them",
				text.Clean(repo.Path), ChangedFiles(repo.Changed))
		}
	}()
	return func() string { return <-found }, nil
}

// localDir returns the absolute path of a repository of this machine; "" for none and for a URL.
func localDir(repo string) string {
	if t, err := git.RepoTransport(repo); err != nil || t != git.TransportLocal {
		return ""
	}
	dir, err := git.AbsRepo(repo)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return "" // the creation reports it
	}
	return dir
}

// ChangedFiles names some of the changed files.
func ChangedFiles(names []string) string {
	s := text.Clean(strings.Join(names[:min(len(names), maxUncommitted)], ", "))
	if more := len(names) - maxUncommitted; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// warnOfRoots warns of mounts that a jail cannot write to.
func warnOfRoots(b *Env, sb *sandbox.Sandbox) {
	if sb.Spec().Runtime != sandbox.RuntimeJail || os.Geteuid() != 0 {
		return
	}
	for _, m := range sb.Spec().Mounts {
		if !m.ReadOnly && ownedByRoot(m.Source) {
			b.Warn(fmt.Sprintf("%s belongs to root, and commands in a jail never run as root: they can only read it; "+
				"`chown` it, or use the runtime container",
				text.Clean(m.Source)))
		}
	}
}

func ownedByRoot(dir string) bool {
	st, err := os.Stat(dir)
	if err != nil {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Uid == 0
}
