package credentials

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// tipTimeout bounds fetching one commit, of which a large repository's is some hundred megabytes.
	tipTimeout = 3 * time.Minute
	// maxTip bounds what it takes on the disk, in bytes, looked at every tipPoll.
	maxTip  = 1 << 30
	tipPoll = 200 * time.Millisecond
	// tipGrace is longer than git has for its end. The library may never come back from a server that does not answer.
	tipGrace = unpackGrace + time.Second
)

var errLargeTip = errors.New("its files are larger than 1 GB")

// Tip fetches the last commit of the remote's branch (its default one if empty), without history, into a new bare repository in an
// empty folder, with the credential for that host. It returns the commit's name there.
func (f *Finder) Tip(ctx context.Context, remote, branch, dir string) (ref string, err error) {
	cred, err := f.Git(ctx, remote)
	if err != nil {
		return "", err
	}
	if err := f.Check(ctx, remote, branch, cred); err != nil { // names what is wrong
		return "", err
	}
	auth, err := authMethod(remote, cred)
	if err != nil {
		return "", fault.New(workorder.ExitGit, fmt.Errorf("open remote %s: %w", Redacted(remote), err), "")
	}
	repo, err := git.PlainInit(dir, true)
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", Redacted(remote), err)
	}
	ref = "refs/heads/base"
	from := "HEAD"
	if branch != "" {
		from = "refs/heads/" + branch
	}
	timed, cancel := context.WithTimeout(ctx, tipTimeout)
	defer cancel()
	bounded, stop := context.WithCancelCause(timed)
	defer stop(nil)
	done := make(chan error, 1) // the library does not always come back, see list
	go func() {
		// The remote is nowhere written: its URL may hold a credential.
		r := git.NewRemote(&unpacked{Storer: repo.Storer, ctx: bounded, dir: dir}, &config.RemoteConfig{Name: "origin", URLs: []string{remote}})
		done <- r.FetchContext(bounded, &git.FetchOptions{Auth: auth, Depth: 1, Tags: git.NoTags, RefSpecs: []config.RefSpec{config.RefSpec("+" + from + ":" + ref)}})
	}()
	err = wait(bounded, done, func() {
		if size(dir) > maxTip {
			stop(errLargeTip)
		}
	})
	if err != nil {
		return "", fault.New(workorder.ExitGit, fmt.Errorf("fetch the files of %s: %w", Redacted(remote), err), "clone it and run there, or write a project file: `sandbox-agent create --project FILE`")
	}
	return ref, nil
}

// wait returns what comes from done, or why ctx ended before, and looks in the meantime. A fetch that is stopped has tipGrace to end:
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
			case <-time.After(tipGrace):
			}
			return context.Cause(ctx)
		case <-time.After(tipPoll):
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
