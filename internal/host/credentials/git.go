// Package credentials finds the credential of the remote repository and the secrets that the project references, as
// late as possible, and checks the remote with it before anything is started. It stores nothing and prints nothing.
package credentials

import (
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

// helperTimeout bounds the programs that are asked for a token: each may ask a key ring, none may wait for a person.
const helperTimeout = 10 * time.Second

// Finder looks for credentials.
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

// Git finds the credential for a remote; nil if there is none, as the remote may be public. The order:
// SANDBOX_AGENT_GIT_TOKEN; GH_TOKEN or GITHUB_TOKEN; a GitHub App; gh; the host's git credential helper. A
// token of the GitHub family, or of an App, is only sent to GitHub, over a connection that others cannot read.
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

// GitToken is the variable of highest priority. Its token is used for every server.
const GitToken = "SANDBOX_AGENT_GIT_TOKEN"

// http is Git for a remote by HTTP. from names the source of the credential.
func (f *Finder) http(ctx context.Context, u *url.URL, remote string) (cred *workorder.GitCredential, from string, err error) {
	if t := f.Getenv(GitToken); t != "" {
		return token(f.Getenv("SANDBOX_AGENT_GIT_USERNAME"), t), GitToken, nil
	}
	return f.ofHost(ctx, u, remote)
}

// ofHost is http without GitToken, which is for every server.
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

// token builds a credential; every forge accepts this user name with a token.
func token(user, t string) *workorder.GitCredential {
	if user == "" {
		user = "x-access-token"
	}
	return &workorder.GitCredential{Username: user, Token: strings.TrimSpace(t)}
}

// isGitHub reports whether GH_TOKEN is meant for the host: github.com, or the host of the
// user's GH_HOST. It is never sent to another one.
func (f *Finder) isGitHub(host string) bool {
	host = strings.ToLower(host)
	return host == "github.com" || host != "" && host == strings.ToLower(f.Getenv("GH_HOST"))
}

// askGh is the command that asks the gh tool for a host's token. For a host that is neither
// GitHub's nor the user's GH_HOST, gh may only use its stored tokens: otherwise it would give
// the variables for the user's own server to every host that a project names.
func (f *Finder) askGh(host string) []string {
	argv := []string{"gh", "auth", "token", "--hostname", host}
	if f.isGitHub(host) || strings.HasSuffix(strings.ToLower(host), ".ghe.com") {
		return argv
	}
	return append([]string{"env", "-u", "GH_ENTERPRISE_TOKEN", "-u", "GITHUB_ENTERPRISE_TOKEN"}, argv...)
}

// helper asks the host's own git credential helpers, which must never prompt. To have none is common and not an error.
func (f *Finder) helper(ctx context.Context, u *url.URL) (*workorder.GitCredential, error) {
	if strings.ContainsFunc(u.Scheme+u.Host+u.Path+u.User.Username(), unicode.IsControl) {
		// A line break would add a line to git's input, which could name another host.
		return nil, exiterr.New(workorder.ExitInvalid, errors.New("ask git's credential helper: the repository's address holds a "+
			"control character"), "remove it; %0a is one")
	}
	ask := fmt.Sprintf("protocol=%s\nhost=%s\n", u.Scheme, u.Host)
	if p := strings.TrimPrefix(u.Path, "/"); p != "" {
		ask += "path=" + p + "\n"
	}
	if n := u.User.Username(); n != "" {
		ask += "username=" + n + "\n"
	}
	// Outside of any repository: the current one may configure a helper, which can be any program. Only the configuration of user
	// and machine counts.
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

// sshRemote reports whether the remote is reached by SSH, and its host.
func sshRemote(remote string) (host string, ok bool) {
	if u, err := url.Parse(remote); err == nil && (u.Scheme == "ssh" || u.Scheme == "git+ssh") {
		return u.Host, true
	}
	// user@host:path, unless it is a path or another URL.
	at, path, found := strings.Cut(remote, ":")
	if !found || strings.Contains(at, "/") || strings.HasPrefix(path, "//") {
		return "", false
	}
	_, host, _ = strings.Cut(at, "@")
	if host == "" {
		host = at
	}
	return host, true
}

// identities are ssh's own defaults, in its order.
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
			return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("read SSH key: %w", err), "SANDBOX_AGENT_SSH_KEY names a private key file")
		}
		if err := checkKey(p, key); err != nil {
			return nil, err
		}
		c := &workorder.GitCredential{SSHKey: string(key)}
		known := f.Getenv("SANDBOX_AGENT_SSH_KNOWN_HOSTS")
		if known == "" {
			known = filepath.Join(home, "known_hosts")
		}
		b, err := os.ReadFile(known)
		if err != nil {
			return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("read known SSH hosts: %w", err),
				"the host's key must be known before anything is sent to it: "+keyscan(remote)+" >> "+known+", after checking it")
		}
		c.KnownHosts = string(b)
		return c, nil
	}
	return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s needs an SSH key and there is none in %s", host, home),
		"set SANDBOX_AGENT_SSH_KEY to a private key file (keys that live only in an ssh agent cannot enter the sandbox)")
}

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

// knownHosts accepts the keys that content has for the host. A server has keys of several kinds and known_hosts often
// one of them: the client must ask for that kind, like ssh does, or it gets another one and takes it for a forgery.
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
			return exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s: its SSH host key is not known", shown),
				"nothing is sent to a host that is not known: add it with `"+keyscan(shown)+"` to ~/.ssh/known_hosts (or to the file that "+
					"SANDBOX_AGENT_SSH_KNOWN_HOSTS names), after checking it")
		}
		return exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s: its SSH host key differs from the known one", shown),
			"either the host has a new key or somebody is in between: ask who runs it before you change known_hosts")
	}
	if _, ok := errors.AsType[*knownhosts.RevokedError](err); ok {
		return exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s: its SSH host key is marked as revoked", shown),
			"ask who runs the host for its key")
	}
	// The library has no type for a server that accepts none of our keys.
	if strings.Contains(err.Error(), "ssh: unable to authenticate") {
		return exiterr.New(workorder.ExitGit, fmt.Errorf("remote %s refused the SSH key", shown),
			"check that the public key may read and write this repository; SANDBOX_AGENT_SSH_KEY names another private key")
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
			"it cannot be entered in the sandbox: make a deploy key without one and set SANDBOX_AGENT_SSH_KEY to it")
	}
	if err != nil {
		return exiterr.New(workorder.ExitGit, fmt.Errorf("SSH key %s: %w", path, err), "SANDBOX_AGENT_SSH_KEY names a private key file")
	}
	return nil
}

// bare is a temporary repository with the objects that a remote sent.
func bare(dir string) git.Repo { return git.Repo{Dir: dir, Bare: true, Untrusted: true} }

// packLimits bound what a remote sends: a small pack may hold objects of many gigabytes.
var packLimits = git.PackLimits{Objects: 5_000_000, Blob: 4 << 30, Object: 256 << 20, Total: 64 << 30}

// unpackGrace is what git has to remove its files once it is stopped.
const unpackGrace = 2 * time.Second

// unpacked is a storage whose packs git takes: the library holds each object in memory, whatever its size.
type unpacked struct {
	storage.Storer
	ctx context.Context // of the one fetch: the library's interface has no place for it
	dir string
}

// PackfileWriter implements storer.PackfileWriter.
func (s *unpacked) PackfileWriter() (io.WriteCloser, error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		limited := git.LimitPack(r, packLimits)
		_, err := bare(s.dir).Stream(s.ctx, limited, io.Discard, unpackGrace, "index-pack", "--stdin")
		_ = limited.Close()   // never fails
		r.CloseWithError(err) // what is written from now on fails with it
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
