package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/go-git/go-git/v5/storage/memory"
	"golang.org/x/crypto/ssh"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// checkTimeout bounds the look at a remote: a host that swallows packets must
// not hold the user for a TCP time-out.
const checkTimeout = 20 * time.Second

// Check verifies that the remote answers, takes the credential and has the
// branch. It reads refs in process and starts nothing.
func (f *Finder) Check(ctx context.Context, remote, branch string, cred *workorder.GitCredential) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	shown := Redacted(remote)
	auth, err := authMethod(remote, cred)
	if err != nil {
		return fault.New(workorder.ExitGit, fmt.Errorf("open remote %s: %w", shown, err), "")
	}
	r := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: "origin", URLs: []string{remote}})
	refs, err := r.ListContext(ctx, &git.ListOptions{Auth: auth})
	if err != nil {
		return explain(ctx, shown, cred, err)
	}
	var heads []string
	for _, ref := range refs {
		if !ref.Name().IsBranch() {
			continue
		}
		if branch == "" || ref.Name() == plumbing.NewBranchReferenceName(branch) {
			return nil
		}
		heads = append(heads, ref.Name().Short())
	}
	if branch == "" {
		return fault.New(workorder.ExitGit, fmt.Errorf("remote %s has no branch", shown), "push a first commit to it")
	}
	hint := "the remote has no branches"
	if len(heads) > 0 {
		hint = "it has: " + strings.Join(heads[:min(len(heads), 8)], ", ")
	}
	return fault.New(workorder.ExitGit, fmt.Errorf("remote %s has no branch %q", shown, branch), hint)
}

func explain(ctx context.Context, shown string, cred *workorder.GitCredential, err error) error {
	hint := "check the address and the network"
	switch {
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fault.New(workorder.ExitGit, fmt.Errorf("remote %s is empty", shown), "push a first commit to it")
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		if cred == nil {
			return fault.New(workorder.ExitGit, fmt.Errorf("remote %s asks for a credential and none was found", shown),
				"set SANDBOX_AGENT_GIT_TOKEN, or log in with `gh auth login`, or configure a git credential helper")
		}
		return fault.New(workorder.ExitGit, fmt.Errorf("remote %s refused the credential", shown),
			"check that the token is valid and may read and write this repository")
	case errors.Is(err, transport.ErrRepositoryNotFound):
		hint = "check the name; forges also say this of a private repository when the token may not see it"
	case ctx.Err() != nil:
		err = fmt.Errorf("no answer within %s", checkTimeout)
	}
	return fault.New(workorder.ExitGit, fmt.Errorf("look at remote %s: %w", shown, err), hint)
}

func authMethod(remote string, cred *workorder.GitCredential) (transport.AuthMethod, error) {
	switch {
	case cred == nil:
		return nil, nil
	case cred.SSHKey != "":
		ep, err := transport.NewEndpoint(remote)
		if err != nil {
			return nil, err
		}
		user := ep.User
		if user == "" {
			user = "git"
		}
		keys, err := gitssh.NewPublicKeys(user, []byte(cred.SSHKey), "")
		if err != nil {
			return nil, fmt.Errorf("read SSH key: %w", err)
		}
		if keys.HostKeyCallback, err = knownHosts(cred.KnownHosts); err != nil {
			return nil, err
		}
		return keys, nil
	}
	return &githttp.BasicAuth{Username: cred.Username, Password: cred.Token}, nil
}

// knownHosts needs a file, as that is all the library reads.
func knownHosts(content string) (ssh.HostKeyCallback, error) {
	f, err := os.CreateTemp("", "known_hosts-*")
	if err != nil {
		return nil, fmt.Errorf("check SSH hosts: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("check SSH hosts: %w", err)
	}
	return gitssh.NewKnownHostsCallback(f.Name())
}

func checkKey(path string, key []byte) error {
	_, err := ssh.ParsePrivateKey(key)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return fault.New(workorder.ExitGit, fmt.Errorf("SSH key %s is protected by a passphrase", path),
			"nobody can type it in the box: make a deploy key without one and set SANDBOX_AGENT_SSH_KEY to it")
	}
	if err != nil {
		return fault.New(workorder.ExitGit, fmt.Errorf("SSH key %s: %w", path, err), "SANDBOX_AGENT_SSH_KEY names a private key file")
	}
	return nil
}

// Redacted is the remote without what a URL can carry of a credential.
func Redacted(remote string) string {
	u, err := url.Parse(remote)
	if err != nil || u.User == nil || u.Host == "" {
		return remote
	}
	u.User = nil
	return u.String()
}

// Split takes a credential out of a URL: it must not be in an order, which is
// written to disk. A user name alone is kept.
func Split(remote string) (clean string, cred *workorder.GitCredential) {
	u, err := url.Parse(remote)
	if err != nil || u.User == nil || u.Scheme != "http" && u.Scheme != "https" {
		return remote, nil
	}
	pass, ok := u.User.Password()
	if !ok {
		return remote, nil
	}
	cred = &workorder.GitCredential{Username: u.User.Username(), Token: pass}
	u.User = nil
	return u.String(), cred
}
