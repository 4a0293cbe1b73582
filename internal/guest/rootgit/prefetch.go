package rootgit

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Prefetch brings the bundle that the host may have put into a standby into the mirror in dir. The later fetch has less to transfer.
func Prefetch(ctx context.Context, dir string) error {
	if _, err := os.Lstat(workorder.RepoIn); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	repos := remote.Repos{Dir: dir, Order: &workorder.Order{}}
	return errors.Join(repos.Unbundle(ctx, workorder.RepoIn), os.Remove(workorder.RepoIn))
}
