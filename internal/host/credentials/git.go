// Package credentials finds credentials for remotes, tokens for forges and a project's secrets, and checks remotes with them.
package credentials

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing/transport"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/go-git/go-git/v5/storage"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// helperTimeout bounds programs that return a token. They may read a key ring, but not prompt.
const helperTimeout = 10 * time.Second

// Finder finds credentials. It stores and prints nothing.
type Finder struct {
	Getenv func(string) string
	// Run starts a program and returns its output; tests replace it.
	Run func(ctx context.Context, argv []string, stdin string) (string, error)
}

// New returns a Finder with the given environment.
func New(getenv func(string) string) *Finder { return &Finder{Getenv: getenv, Run: run} }

func run(ctx context.Context, argv []string, stdin string) (string, error) {
	env := slices.Concat(os.Environ(), git.NoPrompt(), []string{"GH_PROMPT_DISABLED=1", "GCM_INTERACTIVE=never"})
	out, err := proc.Output(ctx, proc.Spec{Argv: argv, Env: env, Stdin: strings.NewReader(stdin)})
	return string(out), err
}

// Git returns the credential for a remote; nil if there is none, since the remote may be public. It tries in this order:
// SANDBOX_AGENT_GIT_TOKEN; GH_TOKEN or GITHUB_TOKEN; a GitHub App; gh; git's credential helper. It sends GitHub tokens only to
// GitHub, over an encrypted or private connection.
func (f *Finder) Git(ctx context.Context, remote string) (*workorder.GitCredential, error) {
	if host, ok := sshRemote(remote); ok {
		return f.ssh(remote, host)
	}
	u, err := url.Parse(remote)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, nil
	}
	cred, _, err := f.http(ctx, u, remote)
	return cred, err
}

// GitToken is the variable of highest priority. Its token is for every server.
const GitToken = "SANDBOX_AGENT_GIT_TOKEN"

// http is Git for an HTTP remote. from is the credential's source.
func (f *Finder) http(ctx context.Context, u *url.URL, remote string) (cred *workorder.GitCredential, from string, err error) {
	if t := f.Getenv(GitToken); t != "" {
		return token(f.Getenv("SANDBOX_AGENT_GIT_USERNAME"), t), GitToken, nil
	}
	return f.ofHost(ctx, u, remote)
}

// ofHost is http without GitToken.
func (f *Finder) ofHost(ctx context.Context, u *url.URL, remote string) (cred *workorder.GitCredential, from string, err error) {
	if f.isGitHub(u.Host) && !readable(u) {
		for _, name := range []string{"GH_TOKEN", "GITHUB_TOKEN"} {
			if t := f.Getenv(name); t != "" {
				return token("", t), name, nil
			}
		}
	}
	if f.usesApp(remote) {
		cred, err = f.appCredential(ctx, remote)
		return cred, "the GitHub App", err
	}
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	if u.Scheme == "https" {
		if out, err := f.Run(ctx, f.askGh(u.Host), ""); err == nil && strings.TrimSpace(out) != "" {
			return token("", strings.TrimSpace(out)), "`gh auth token`", nil
		}
	}
	cred, err = f.helper(ctx, u)
	return cred, "git's credential helper", err
}

// token returns a credential. Every forge accepts this user name with a token.
func token(user, t string) *workorder.GitCredential {
	user = cmp.Or(user, "x-access-token")
	return &workorder.GitCredential{Username: user, Token: strings.TrimSpace(t)}
}

// isGitHub reports whether GH_TOKEN is for the host: github.com, or GH_HOST.
func (f *Finder) isGitHub(host string) bool {
	host = strings.ToLower(host)
	return host == "github.com" || host != "" && host == strings.ToLower(f.Getenv("GH_HOST"))
}

// askGh returns the gh command for a host's token. For a host that is neither GitHub's nor GH_HOST, gh must use only its stored
// tokens, not the variables for the user's own server.
func (f *Finder) askGh(host string) []string {
	argv := []string{"gh", "auth", "token", "--hostname", host}
	if f.isGitHub(host) || strings.HasSuffix(strings.ToLower(host), ".ghe.com") {
		return argv
	}
	return append([]string{"env", "-u", "GH_ENTERPRISE_TOKEN", "-u", "GITHUB_ENTERPRISE_TOKEN"}, argv...)
}

// helper asks git's credential helpers, which must not prompt. Having none is not an error.
func (f *Finder) helper(ctx context.Context, u *url.URL) (*workorder.GitCredential, error) {
	if strings.ContainsFunc(u.Scheme+u.Host+u.Path+u.User.Username(), unicode.IsControl) {
		// A line break would add a line to git's input, such as another host.
		return nil, exiterr.New(workorder.ExitInvalid, errors.New("control character in the repository's address"), "remove it; %0a is one")
	}
	ask := fmt.Sprintf("protocol=%s\nhost=%s\n", u.Scheme, u.Host)
	if p := strings.TrimPrefix(u.Path, "/"); p != "" {
		ask += "path=" + p + "\n"
	}
	if n := u.User.Username(); n != "" {
		ask += "username=" + n + "\n"
	}
	// Run git outside of any repository, whose configuration could name any program as a helper.
	out, err := f.Run(ctx, []string{"git", "--git-dir=/dev/null", "credential", "fill"}, ask+"\n")
	if err != nil {
		return nil, nil
	}
	var user, pass string
	for line := range strings.Lines(out) {
		k, v, _ := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
		switch k {
		case "username":
			user = v
		case "password":
			pass = v
		}
	}
	if pass == "" {
		return nil, nil
	}
	return token(user, pass), nil
}

// sshRemote returns the host of an SSH remote; ok reports whether it is one.
func sshRemote(remote string) (host string, ok bool) {
	if u, err := url.Parse(remote); err == nil && (u.Scheme == "ssh" || u.Scheme == "git+ssh") {
		return u.Host, true
	}
	// user@host:path, but not a path or URL.
	at, path, found := strings.Cut(remote, ":")
	if !found || strings.Contains(at, "/") || strings.HasPrefix(path, "//") {
		return "", false
	}
	_, host, _ = strings.Cut(at, "@")
	host = cmp.Or(host, at)
	return host, true
}

// identities are ssh's default keys, in its order.
var identities = []string{"id_rsa", "id_ecdsa", "id_ed25519"}

func (f *Finder) ssh(remote, host string) (*workorder.GitCredential, error) {
	home := filepath.Join(f.Getenv("HOME"), ".ssh")
	paths := []string{f.Getenv("SANDBOX_AGENT_SSH_KEY")}
	if paths[0] == "" {
		paths = nil
		for _, n := range identities {
			paths = append(paths, filepath.Join(home, n))
		}
	}
	for _, p := range paths {
		key, err := os.ReadFile(p)
		if errors.Is(err, os.ErrNotExist) && f.Getenv("SANDBOX_AGENT_SSH_KEY") == "" {
			continue
		}
		if err != nil {
			return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("read SSH key: %w", err), "set SANDBOX_AGENT_SSH_KEY to a private key file")
		}
		if err := checkKey(p, key); err != nil {
			return nil, err
		}
		c := &workorder.GitCredential{SSHKey: string(key)}
		known := cmp.Or(f.Getenv("SANDBOX_AGENT_SSH_KNOWN_HOSTS"), filepath.Join(home, "known_hosts"))
		b, err := os.ReadFile(known)
		if err != nil {
			return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("read known SSH hosts: %w", err),
				"check the host's key and add it: "+keyscan(remote)+" >> "+known)
		}
		c.KnownHosts = string(b)
		return c, nil
	}
	return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s needs an SSH key, and %s has none", host, home),
		"set SANDBOX_AGENT_SSH_KEY to a private key file (a sandbox cannot use keys of an ssh agent)")
}

const sshPort = 22

func sshAuth(remote string, cred *workorder.GitCredential) (transport.AuthMethod, error) {
	ep, err := transport.NewEndpoint(remote)
	if err != nil {
		return nil, err
	}
	user := cmp.Or(ep.User, "git")
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

// knownHosts accepts the keys for host in content. The client must request a key type that content has, as ssh does: a key of another
// type would look forged.
func knownHosts(content, host string) (h gitssh.HostKeyCallbackHelper, err error) {
	// The library only reads files.
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
		// Hide the path of the temporary file.
		return h, fmt.Errorf("read known SSH hosts: %s", strings.ReplaceAll(err.Error(), f.Name(), "known_hosts"))
	}
	return gitssh.HostKeyCallbackHelper{HostKeyCallback: db.HostKeyCallback(), HostKeyAlgorithms: db.HostKeyAlgorithms(host)}, nil
}

// explainSSH explains an error of the host's or the user's key; nil for other errors.
func explainSSH(shown string, err error) error {
	if key, ok := errors.AsType[*knownhosts.KeyError](err); ok {
		if len(key.Want) == 0 {
			return exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s: unknown SSH host key", shown),
				"check the key of `"+keyscan(shown)+"` and add it to ~/.ssh/known_hosts, or to the file in SANDBOX_AGENT_SSH_KNOWN_HOSTS")
		}
		return exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s: SSH host key differs from the known one", shown),
			"the key is new, or another host intercepts the connection: ask the host's administrator before you change known_hosts")
	}
	if _, ok := errors.AsType[*knownhosts.RevokedError](err); ok {
		return exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s: SSH host key is revoked", shown),
			"ask the host's administrator for its key")
	}
	// The library has no error type for refused keys.
	if strings.Contains(err.Error(), "ssh: unable to authenticate") {
		return exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s refused the SSH key", shown),
			"check the access of the public key to this repository; set SANDBOX_AGENT_SSH_KEY for another private key")
	}
	return nil
}

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
		return exiterr.New(workorder.ExitGit, fmt.Errorf("SSH key %s is protected by a passphrase", path),
			"create a deploy key without a passphrase and set SANDBOX_AGENT_SSH_KEY to it")
	}
	if err != nil {
		return exiterr.New(workorder.ExitGit, fmt.Errorf("SSH key %s: %w", path, err), "set SANDBOX_AGENT_SSH_KEY to a private key file")
	}
	return nil
}

// bare returns a temporary repository with objects from a remote.
func bare(dir string) git.Repo { return git.Repo{Dir: dir, Bare: true, Untrusted: true} }

// packLimits bound the objects of a remote: a small pack can contain many gigabytes.
var packLimits = git.PackLimits{Objects: 5_000_000, Blob: 4 << 30, Object: 256 << 20, Total: 64 << 30}

const unpackGrace = 2 * time.Second // for git to remove its files

// unpacked is a storage that passes packs to git: the library would hold each object in memory.
type unpacked struct {
	storage.Storer
	ctx context.Context // of the only fetch: the interface has no parameter for it
	dir string
}

func (s *unpacked) PackfileWriter() (io.WriteCloser, error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		limited := git.LimitPack(r, packLimits)
		_, err := bare(s.dir).Stream(s.ctx, limited, io.Discard, unpackGrace, "index-pack", "--stdin")
		_ = limited.Close()   // never fails
		r.CloseWithError(err) // for later writes
		done <- err
	}()
	return &packWriter{w, done}, nil
}

type packWriter struct {
	*io.PipeWriter
	done chan error
}

// Close waits until the pack is in the repository.
func (w *packWriter) Close() error {
	_ = w.PipeWriter.Close() // never fails
	return <-w.done
}
