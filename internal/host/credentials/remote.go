package credentials

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	own "github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// checkTimeout bounds reading a remote, for hosts that drop packets.
const checkTimeout = 20 * time.Second

// Check verifies that the remote answers, accepts the credential, has the base (a branch, tag or commit; "" means the default branch)
// and can have the branch target, if given. It returns the full name of the base, or the commit, which only a fetch can verify.
func (f *Finder) Check(ctx context.Context, remote, base, target string, cred *workorder.GitCredential) (name string, err error) {
	refs, err := f.refs(ctx, remote, cred)
	if err != nil {
		return "", err
	}
	shown := Redacted(remote)
	var heads []string
	for _, ref := range refs {
		switch short := ref.Name().Short(); {
		case ref.Name().IsTag() && short == base && name == "":
			name = ref.Name().String()
		case !ref.Name().IsBranch():
		case target != "" && workorder.BranchesClash(short, target):
			return "", exiterr.New(workorder.ExitGit, fmt.Errorf("branch %s of remote %s excludes a branch %s", short, shown, target),
				"rename the branch "+short+" there")
		default:
			if base == "" || short == base {
				name = ref.Name().String()
			}
			heads = append(heads, short)
		}
	}
	switch {
	case name != "":
		return name, nil
	case base == "":
		return "", exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s has no branch", shown), "push a first commit to it")
	case own.ValidSHA(base):
		return base, nil
	}
	hint := "the remote has no branches"
	if len(heads) > 0 {
		hint = "available: " + strings.Join(heads[:min(len(heads), 8)], ", ")
	}
	return "", exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s has no branch or tag %q", shown, base), hint)
}

// Answers verifies that the remote answers and accepts the credential.
func (f *Finder) Answers(ctx context.Context, remote string, cred *workorder.GitCredential) error {
	_, err := f.refs(ctx, remote, cred)
	return err
}

// Tips returns the commit ids of the remote's branches and tags, branches first.
func (f *Finder) Tips(ctx context.Context, remote string, cred *workorder.GitCredential) (ids []string, err error) {
	refs, err := f.refs(ctx, remote, cred)
	if err != nil {
		return nil, err
	}
	var tags []string
	for _, ref := range refs {
		switch {
		case ref.Type() != plumbing.HashReference:
		case ref.Name().IsBranch():
			ids = append(ids, ref.Hash().String())
		case ref.Name().IsTag():
			tags = append(tags, ref.Hash().String())
		}
	}
	return append(ids, tags...), nil
}

func (f *Finder) refs(ctx context.Context, remote string, cred *workorder.GitCredential) ([]*plumbing.Reference, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	shown := Redacted(remote)
	auth, err := authMethod(remote, cred)
	if err != nil {
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("open remote %s: %w", shown, err), "")
	}
	refs, err := list(ctx, remote, auth)
	if err != nil {
		return nil, explain(ctx, shown, cred, err)
	}
	return refs, nil
}

// list reads the remote's refs. It returns when ctx ends: the library ignores the context in an SSH handshake.
func list(ctx context.Context, remote string, auth transport.AuthMethod) ([]*plumbing.Reference, error) {
	type answer struct {
		refs []*plumbing.Reference
		err  error
	}
	c := make(chan answer, 1)
	go func() {
		r := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: "origin", URLs: []string{remote}})
		refs, err := r.ListContext(ctx, &git.ListOptions{Auth: auth})
		c <- answer{refs, err}
	}()
	select {
	case a := <-c:
		return a.refs, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// DeleteRefs deletes refs of a remote that are unchanged, all or none if the server supports that.
func (f *Finder) DeleteRefs(ctx context.Context, remote string, refs map[string]string, cred *workorder.GitCredential) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	auth, err := authMethod(remote, cred)
	if err != nil {
		return err
	}
	o := &git.PushOptions{Auth: auth, Atomic: true}
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		o.RefSpecs = append(o.RefSpecs, config.RefSpec(":"+name))
		o.RequireRemoteRefs = append(o.RequireRemoteRefs, config.RefSpec(refs[name]+":"+name))
	}
	done := make(chan error, 1) // the library may hang: see list
	go func() {
		r := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: "origin", URLs: []string{remote}})
		done <- r.PushContext(ctx, o)
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil && !errors.Is(err, git.NoErrAlreadyUpToDate) {
		return explain(ctx, Redacted(remote), cred, fmt.Errorf("delete refs: %w", err))
	}
	return nil
}

// longIDs is the library's message for an object id longer than SHA-1.
const longIDs = "no space after hash"

func explain(ctx context.Context, shown string, cred *workorder.GitCredential, err error) error {
	if cred != nil && cred.SSHKey != "" {
		if sshErr := explainSSH(shown, err); sshErr != nil {
			return sshErr
		}
	}
	hint := "check the address and the network"
	switch {
	case strings.Contains(err.Error(), longIDs):
		return exiterr.New(workorder.ExitGit, fmt.Errorf("read remote %s: %s", shown, own.SHA256Text), "")
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return exiterr.New(workorder.ExitGit, fmt.Errorf("read remote %s: %w", shown, err), "push a first commit to it")
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		if cred == nil {
			return exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s requires a credential, and none was found", shown),
				"set SANDBOX_AGENT_GIT_TOKEN, or log in with `gh auth login`, or configure a git credential helper")
		}
		return exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s refused the credential", shown),
			"check the token's validity and its access to this repository")
	case errors.Is(err, transport.ErrRepositoryNotFound):
		hint = "check the name; forges also report this for a private repository without access"
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s", checkTimeout)
	case ctx.Err() != nil: // interrupted
		return fmt.Errorf("read remote %s: %w", shown, context.Cause(ctx))
	}
	return exiterr.New(workorder.ExitGit, fmt.Errorf("read remote %s: %w", shown, err), hint)
}

func authMethod(remote string, cred *workorder.GitCredential) (transport.AuthMethod, error) {
	switch {
	case cred == nil:
		return nil, nil
	case cred.SSHKey != "":
		return sshAuth(remote, cred)
	}
	return &githttp.BasicAuth{Username: cred.Username, Password: cred.Token}, nil
}

// Redacted returns the remote without credentials in its URL.
func Redacted(remote string) string {
	u, err := url.Parse(remote)
	if err != nil || u.User == nil || u.Host == "" {
		return remote
	}
	u.User = nil
	return u.String()
}

const (
	tipTimeout = 3 * time.Minute        // for some hundred megabytes
	maxTip     = 1 << 30                // bytes on disk
	fetchPoll  = 200 * time.Millisecond // between checks of the disk use
	// fetchGrace is longer than git's grace. The library may hang on a server that does not answer.
	fetchGrace = unpackGrace + time.Second
)

// Tip fetches the last commit of the remote's base (a branch, tag or commit; "" means the default branch), without history, into a
// new bare repository in an empty directory. It returns the commit's ref there.
func (f *Finder) Tip(ctx context.Context, remote, base, dir string) (ref string, err error) {
	cred, err := f.Git(ctx, remote)
	if err != nil {
		return "", err
	}
	from, err := f.Check(ctx, remote, base, "", cred) // for a better error
	if err != nil {
		return "", err
	}
	auth, err := authMethod(remote, cred)
	if err != nil {
		return "", exiterr.New(workorder.ExitGit, fmt.Errorf("open remote %s: %w", Redacted(remote), err), "")
	}
	ref = "refs/heads/base"
	if base == "" {
		from = "HEAD"
	}
	timed, cancel := context.WithTimeout(ctx, tipTimeout)
	defer cancel()
	if err := fetch(timed, remote, auth, config.RefSpec("+"+from+":"+ref), dir, maxTip); err != nil {
		return "", exiterr.New(workorder.ExitGit, fmt.Errorf("fetch the files of %s: %w", Redacted(remote), err),
			"clone it and run the command there, or write a project file: `sandbox-agent create --project FILE`")
	}
	return ref, nil
}

// fetch fetches a refspec without history into a new bare repository in an empty directory, which may use at most the given bytes.
func fetch(ctx context.Context, remote string, auth transport.AuthMethod, spec config.RefSpec, dir string, most int64) error {
	repo, err := git.PlainInit(dir, true)
	if err != nil {
		return err
	}
	bounded, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1) // the library may hang: see list
	go func() {
		// The remote is not stored, since its URL may have a credential.
		r := git.NewRemote(&unpacked{Storer: repo.Storer, ctx: bounded, dir: dir}, &config.RemoteConfig{Name: "origin", URLs: []string{remote}})
		done <- r.FetchContext(bounded, &git.FetchOptions{Auth: auth, Depth: 1, Tags: git.NoTags, RefSpecs: []config.RefSpec{spec}})
	}()
	large := func() error {
		if size(dir) > most {
			return fmt.Errorf("more than %d MB", most/1e6)
		}
		return nil
	}
	err = wait(bounded, done, func() {
		if err := large(); err != nil {
			stop(err)
		}
	})
	if err != nil {
		return err
	}
	return large() // it may have grown after the last check
}

// wait returns the result of done, or the cause of ctx's end, and calls look periodically. A stopped fetch has fetchGrace to end, since
// it writes to a directory that the caller will remove.
func wait(ctx context.Context, done <-chan error, look func()) error {
	for {
		select {
		case err := <-done:
			if cause := context.Cause(ctx); err != nil && cause != nil {
				return cause
			}
			return err
		case <-ctx.Done():
			select {
			case <-done: //nolint:errcheck // it ends because it was stopped
			case <-time.After(fetchGrace):
			}
			return context.Cause(ctx)
		case <-time.After(fetchPoll):
			look()
		}
	}
}

func size(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // files may disappear
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
