package remote

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// askTime bounds a query of the remote's refs.
const askTime = 30 * time.Second

// RemoteRefs queries the remote for the task's refs.
func (rs *Repos) RemoteRefs(ctx context.Context, branch string) (map[string]string, error) {
	return rs.Ask(ctx, branch, workorder.TaskRefs(rs.Order.TaskID)+"*", workorder.BranchRef(branch))
}

// Ask queries the remote for the task's refs that match the patterns.
func (rs *Repos) Ask(ctx context.Context, branch string, patterns ...string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	out, err := rs.authed(rs.Mirror()).Output(ctx, append([]string{"ls-remote", "--quiet", "--refs", "--", rs.Order.CloneURL}, patterns...)...)
	if err != nil {
		return nil, err
	}
	return TaskRefs(out, rs.Order.TaskID, branch), nil
}
