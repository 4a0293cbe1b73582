package git

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Auth is a credential for one remote. The token is in no argument, environment or file: git's credential helper reads
// it from a descriptor that only this git process and its children have.
type Auth struct {
	URL      string // the remote that the credential is for
	Username string // for HTTP; "" is defaultUsername
	Token    string // for HTTP
	// Renew returns the token in place of Token, for one that expires; it may be nil.
	Renew func(context.Context) (string, error)
	// SSHKeyFile and KnownHostsFile are in memory and readable by the caller only: ssh closes inherited descriptors.
	SSHKeyFile     string
	KnownHostsFile string
	// CAFile has the only authority for the certificate of a remote that another process of this program serves, alone in a directory of
	// the caller's; "" means the machine's.
	CAFile string
}

// defaultUsername is GitHub's documented name beside a token; GitLab and Gitea accept any.
const defaultUsername = "x-access-token"

const sshTimeoutSeconds = 15

// helper answers `get` only. git asks it only for the URL of its configuration key, so a redirect to another host gets
// no credential. /dev/fd/3 is a memory file, which can be read repeatedly.
const helper = `!f() { test "$1" = get && while IFS= read -r l; do printf '%s\n' "$l"; done </dev/fd/3; }; f`

func (a *Auth) prepare(ctx context.Context) (conf, env []string, f *os.File, err error) {
	if a.SSHKeyFile != "" {
		// -F: no configuration of any user; IdentitiesOnly: this key and no other.
		cmd := []string{
			"ssh", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
			"-o", fmt.Sprintf("ConnectTimeout=%d", sshTimeoutSeconds),
			// A dead connection is an error after 20 s.
			"-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=2", "-i", a.SSHKeyFile,
		}
		if a.KnownHostsFile != "" {
			cmd = append(cmd, "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+a.KnownHostsFile)
		} else {
			// Without known hosts, accept the first key for the length of the run.
			cmd = append(cmd, "-o", "StrictHostKeyChecking=accept-new", "-o", "UserKnownHostsFile="+a.SSHKeyFile+".known_hosts")
		}
		return nil, []string{"GIT_SSH_COMMAND=" + strings.Join(cmd, " "), "GIT_SSH_VARIANT=ssh"}, nil, nil
	}
	token := a.Token
	if a.Renew != nil {
		if token, err = a.Renew(ctx); err != nil {
			return nil, nil, nil, fmt.Errorf("renew the token for %s: %w", a.URL, err)
		}
	}
	if a.CAFile != "" {
		// These override all configuration. Without the directory libcurl adds the machine's authorities.
		env = []string{"GIT_SSL_CAINFO=" + a.CAFile, "GIT_SSL_CAPATH=" + filepath.Dir(a.CAFile)}
	}
	if token == "" {
		return nil, env, nil, nil
	}
	u, err := url.Parse(a.URL)
	if err != nil || u.Host == "" {
		return nil, nil, nil, fmt.Errorf("a token needs an HTTP remote, not %q", a.URL)
	}
	user := cmp.Or(a.Username, defaultUsername)
	if strings.ContainsAny(user+token, "\n\x00") {
		return nil, nil, nil, fmt.Errorf("the git credential for %s contains a line break", u.Host)
	}
	if f, err = memoryFile("git-credential"); err != nil {
		return nil, nil, nil, err
	}
	if _, err := fmt.Fprintf(f, "username=%s\npassword=%s\n", user, token); err != nil {
		f.Close()
		return nil, nil, nil, fmt.Errorf("write git credential: %w", err)
	}
	key := u.Scheme + "://" + u.Host
	conf = []string{"-c", "credential." + key + ".helper=" + helper}
	if a.CAFile != "" { // this remote redirects to no other host
		// It saves a first request that has no credential and is refused; git before 2.46 ignores it.
		conf = append(conf, "-c", "http."+key+".proactiveAuth=basic")
	}
	return conf, env, f, nil
}
