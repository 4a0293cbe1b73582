package credentials

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// tipTimeout bounds fetching one commit, of which a large repository's is some hundred megabytes.
	tipTimeout = 3 * time.Minute
	// maxTip bounds what it takes on the disk, in bytes.
	maxTip = 1 << 30
	// fetchPoll is how often the disk is looked at meanwhile.
	fetchPoll = 200 * time.Millisecond
	// fetchGrace is longer than git has for its end. The library may never come back from a server that does not answer.
	fetchGrace = unpackGrace + time.Second
)

// Tip fetches the last commit of the remote's base (a branch, tag or commit; its default branch if empty), without history, into a new bare repository in an
// empty folder, with the credential for that host. It returns the commit's name there.
func (f *Finder) Tip(ctx context.Context, remote, base, dir string) (ref string, err error) {
	cred, err := f.Git(ctx, remote)
	if err != nil {
		return "", err
	}
	from, err := f.Check(ctx, remote, base, "", cred) // names what is wrong
	if err != nil {
		return "", err
	}
	auth, err := authMethod(remote, cred)
	if err != nil {
		return "", fault.New(workorder.ExitGit, fmt.Errorf("open remote %s: %w", Redacted(remote), err), "")
	}
	ref = "refs/heads/base"
	if base == "" {
		from = "HEAD"
	}
	timed, cancel := context.WithTimeout(ctx, tipTimeout)
	defer cancel()
	if err := fetch(timed, remote, auth, config.RefSpec("+"+from+":"+ref), dir, maxTip); err != nil {
		return "", fault.New(workorder.ExitGit, fmt.Errorf("fetch the files of %s: %w", Redacted(remote), err), "clone it and run there, or write a project file: `sandbox-agent create --project FILE`")
	}
	return ref, nil
}

// fetch brings what a refspec names from the remote, without history, into a new bare repository in an empty folder. The folder may take most
// bytes; no pack is held in memory.
func fetch(ctx context.Context, remote string, auth transport.AuthMethod, spec config.RefSpec, dir string, most int64) error {
	repo, err := git.PlainInit(dir, true)
	if err != nil {
		return err
	}
	bounded, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1) // the library does not always come back, see list
	go func() {
		// The remote is nowhere written: its URL may hold a credential.
		r := git.NewRemote(&unpacked{Storer: repo.Storer, ctx: bounded, dir: dir}, &config.RemoteConfig{Name: "origin", URLs: []string{remote}})
		done <- r.FetchContext(bounded, &git.FetchOptions{Auth: auth, Depth: 1, Tags: git.NoTags, RefSpecs: []config.RefSpec{spec}})
	}()
	large := func() error {
		if size(dir) > most {
			return fmt.Errorf("it takes more than %d MB", most/1e6)
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
	return large() // it may have come between two looks
}

// wait returns what comes from done, or why ctx ended before, and looks in the meantime. A fetch that is stopped has fetchGrace to end:
// until then it writes to a folder that its caller is about to remove.
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

// size is what the files below a folder take, in bytes.
func size(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // files come and go meanwhile
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
