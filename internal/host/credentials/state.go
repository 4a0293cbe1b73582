package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TaskRefs lists the full names of a task's refs on a remote: the branches that can be its own,
// and all refs below workorder.TaskRefs. A remote without any ref has none.
func (f *Finder) TaskRefs(ctx context.Context, remote, taskID string, cred *workorder.GitCredential) (names []string, err error) {
	refs, err := f.refs(ctx, remote, cred)
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, ref := range refs {
		if name := ref.Name(); strings.HasPrefix(name.String(), workorder.TaskRefs(taskID)) || name.IsBranch() && workorder.OwnBranch(taskID, name.Short()) {
			names = append(names, name.String())
		}
	}
	return names, nil
}

// State reads the task's state from a remote that has one, in memory.
func (f *Finder) State(ctx context.Context, remote, taskID string, cred *workorder.GitCredential) (*workorder.State, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	b, err := fetchState(ctx, remote, workorder.StateRef(taskID), cred)
	if err != nil {
		return nil, fmt.Errorf("read the state of %s on %s: %w", taskID, Redacted(remote), err)
	}
	return workorder.DecodeState(b, taskID)
}

func fetchState(ctx context.Context, remote, ref string, cred *workorder.GitCredential) ([]byte, error) {
	auth, err := authMethod(remote, cred)
	if err != nil {
		return nil, err
	}
	// The library ignores the context in an SSH handshake, as in list.
	done := make(chan error, 1)
	st := memory.NewStorage()
	go func() {
		r := git.NewRemote(st, &config.RemoteConfig{Name: "origin", URLs: []string{remote}})
		done <- r.FetchContext(ctx, &git.FetchOptions{
			RefSpecs: []config.RefSpec{config.RefSpec("+" + ref + ":" + ref)}, Depth: 1, Auth: auth, Tags: git.NoTags,
		})
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	tip, err := st.Reference(plumbing.ReferenceName(ref))
	if err != nil {
		return nil, err
	}
	commit, err := object.GetCommit(st, tip.Hash())
	if err != nil {
		return nil, err
	}
	file, err := commit.File(workorder.StateFile)
	if err != nil {
		return nil, err
	}
	if file.Size > workorder.MaxState {
		return nil, fmt.Errorf("it has %d bytes, more than %d", file.Size, workorder.MaxState)
	}
	r, err := file.Reader()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b strings.Builder
	if _, err := io.Copy(&b, r); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}
