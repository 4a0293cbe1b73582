package credentials

import (
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

// Forge finds the token for the API of the forge that a remote lies on, empty when there
// is none or the remote is on no GitHub. It is the one that opens the remote by HTTPS, also for a remote that git
// reaches by SSH.
func (f *Finder) Forge(ctx context.Context, remote string) (string, error) {
	if _, ssh := sshRemote(remote); ssh {
		repo, ok := forge.Parse(remote)
		if !ok {
			return "", nil
		}
		remote = fmt.Sprintf("https://%s/%s/%s", repo.Host, repo.Owner, repo.Name)
	}
	cred, err := f.Git(ctx, remote)
	if err != nil || cred == nil {
		return "", err
	}
	return cred.Token, nil
}
