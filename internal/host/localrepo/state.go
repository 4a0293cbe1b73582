package localrepo

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TaskRefs lists the full names of a task's refs in the repository: the branches that can
// be its own, and all refs below workorder.TaskRefs.
func (r *Repo) TaskRefs(ctx context.Context, taskID string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	out, err := gitOut(ctx, r.Path, "for-each-ref", "--format=%(refname)", "refs/heads/agent/", workorder.TaskRefs(taskID))
	if err != nil {
		return nil, fault.New(workorder.ExitGit, fmt.Errorf("look for task %s in %s: %w", taskID, r.Path, err), "")
	}
	for name := range strings.FieldsSeq(out) {
		if branch, isBranch := strings.CutPrefix(name, "refs/heads/"); !isBranch || workorder.OwnBranch(taskID, branch) {
			names = append(names, name)
		}
	}
	return names, nil
}

// State reads the task's state from a repository that has one.
func (r *Repo) State(ctx context.Context, taskID string) (*workorder.State, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	blob := workorder.StateRef(taskID) + ":" + workorder.StateFile
	size, err := gitOut(ctx, r.Path, "cat-file", "-s", blob)
	if err != nil {
		return nil, fmt.Errorf("read the state of %s in %s: %w", taskID, r.Path, err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(size)); err != nil || n > workorder.MaxState {
		return nil, fmt.Errorf("read the state of %s in %s: it has %s bytes, more than %d", taskID, r.Path, strings.TrimSpace(size), workorder.MaxState)
	}
	b, err := gitOut(ctx, r.Path, "cat-file", "blob", blob)
	if err != nil {
		return nil, fmt.Errorf("read the state of %s in %s: %w", taskID, r.Path, err)
	}
	return workorder.DecodeState([]byte(b), taskID)
}
