package credentials

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const sshPort = 22

func sshAuth(remote string, cred *workorder.GitCredential) (transport.AuthMethod, error) {
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
	port := ep.Port
	if port <= 0 {
		port = sshPort
	}
	keys.HostKeyCallbackHelper, err = knownHosts(cred.KnownHosts, net.JoinHostPort(ep.Host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// knownHosts accepts the keys that content has for the host. A server has keys of several
// kinds and known_hosts often one of them: the client must ask for that kind, like ssh does,
// or it gets another one and takes it for a forgery.
func knownHosts(content, host string) (h gitssh.HostKeyCallbackHelper, err error) {
	// The library reads only files.
	f, err := os.CreateTemp("", "known_hosts-*")
	if err != nil {
		return h, fmt.Errorf("check SSH hosts: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return h, fmt.Errorf("check SSH hosts: %w", err)
	}
	db, err := gitssh.NewKnownHostsDb(f.Name())
	if err != nil {
		// The library's error has the path of this file, which is removed by then.
		return h, fmt.Errorf("read known SSH hosts: %s", strings.ReplaceAll(err.Error(), f.Name(), "known_hosts"))
	}
	return gitssh.HostKeyCallbackHelper{HostKeyCallback: db.HostKeyCallback(), HostKeyAlgorithms: db.HostKeyAlgorithms(host)}, nil
}

// explainSSH explains a failure of the host's or the user's key; nil if it is something else.
func explainSSH(shown string, err error) error {
	if key, ok := errors.AsType[*knownhosts.KeyError](err); ok {
		if len(key.Want) == 0 {
			return fault.New(workorder.ExitGit, fmt.Errorf("remote %s: its SSH host key is not known", shown),
				"nothing is sent to a host that is not known: add it with `"+keyscan(shown)+"` to ~/.ssh/known_hosts (or to the file that SANDBOX_AGENT_SSH_KNOWN_HOSTS names), after checking it")
		}
		return fault.New(workorder.ExitGit, fmt.Errorf("remote %s: its SSH host key differs from the known one", shown),
			"either the host has a new key or somebody is in between: ask who runs it before you change known_hosts")
	}
	if _, ok := errors.AsType[*knownhosts.RevokedError](err); ok {
		return fault.New(workorder.ExitGit, fmt.Errorf("remote %s: its SSH host key is marked as revoked", shown), "ask who runs the host for its key")
	}
	// The library has no type for a server that accepts none of our keys.
	if strings.Contains(err.Error(), "ssh: unable to authenticate") {
		return fault.New(workorder.ExitGit, fmt.Errorf("remote %s refused the SSH key", shown),
			"check that the public key may read and write this repository; SANDBOX_AGENT_SSH_KEY names another private key")
	}
	return nil
}

// keyscan is the command that prints the host's keys.
func keyscan(remote string) string {
	host, _ := sshRemote(remote)
	if u, err := url.Parse(remote); err == nil && u.Hostname() != "" {
		host = u.Hostname()
		if u.Port() != "" {
			host = "-p " + u.Port() + " " + host
		}
	}
	return "ssh-keyscan " + host
}

func checkKey(path string, key []byte) error {
	_, err := ssh.ParsePrivateKey(key)
	if _, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		return fault.New(workorder.ExitGit, fmt.Errorf("SSH key %s is protected by a passphrase", path),
			"it cannot be entered in the sandbox: make a deploy key without one and set SANDBOX_AGENT_SSH_KEY to it")
	}
	if err != nil {
		return fault.New(workorder.ExitGit, fmt.Errorf("SSH key %s: %w", path, err), "SANDBOX_AGENT_SSH_KEY names a private key file")
	}
	return nil
}
