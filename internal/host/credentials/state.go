package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing/transport"

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

// State reads the task's state from a remote that has one. It lies in a temporary folder meanwhile.
func (f *Finder) State(ctx context.Context, remote, taskID string, cred *workorder.GitCredential) (*workorder.State, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	b, err := fetchState(ctx, remote, workorder.StateRef(taskID), cred)
	if err != nil {
		return nil, fmt.Errorf("read the state of %s on %s: %w", taskID, Redacted(remote), err)
	}
	return workorder.DecodeState(b, taskID)
}

// maxStateDir bounds what a fetched state takes on the disk, in bytes: the pack, its index and the folder around them.
const maxStateDir = 2 * workorder.MaxState

func fetchState(ctx context.Context, remote, ref string, cred *workorder.GitCredential) (b []byte, err error) {
	auth, err := authMethod(remote, cred)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sandbox-agent-state-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := fetch(ctx, remote, auth, config.RefSpec("+"+ref+":"+ref), dir, maxStateDir); err != nil {
		return nil, err
	}
	repo, file := bare(dir), ref+":"+workorder.StateFile
	said, err := repo.Output(ctx, "cat-file", "-s", file)
	if err != nil {
		return nil, err
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(string(said)), 10, 64); err != nil || n > workorder.MaxState {
		return nil, fmt.Errorf("it has %s bytes, more than %d", strings.TrimSpace(string(said)), workorder.MaxState)
	}
	// Output is for less than a state may have.
	var content bytes.Buffer
	_, err = repo.Stream(ctx, strings.NewReader(""), &content, unpackGrace, "cat-file", "blob", file)
	return content.Bytes(), err
}
