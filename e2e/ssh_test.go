//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// sshd is a real OpenSSH server with keys, configuration and repository of its own.
type sshd struct {
	dir  string // bare repository app.git, keys
	host string
	port string
	log  *syncBuffer
}

const sshdPath = "/usr/sbin/sshd"

// sshKinds are the host keys that a distribution's sshd has. A client that
// knows one of them has to ask for that one.
var sshKinds = []string{"rsa", "ecdsa", "ed25519"}

func newSSHD(t *testing.T) *sshd {
	t.Helper()
	if _, err := os.Stat(sshdPath); err != nil {
		t.Fatalf("%v: scripts/need.sh test installs it", err)
	}
	// Where sshd keeps the unprivileged half of itself; the init script makes it.
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	s := &sshd{dir: t.TempDir(), host: hostAddress(t), log: &syncBuffer{}}
	s.port = freePort(t, s.host)
	conf := fmt.Sprintf("Port %s\nListenAddress %s\nAuthorizedKeysFile %s\nStrictModes no\nPidFile none\n"+
		"PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nUsePAM %s\n",
		s.port, s.host, s.path("authorized_keys"), usePAM(t))
	for _, kind := range sshKinds {
		s.keygen(t, kind, "host_"+kind)
		conf += "HostKey " + s.path("host_"+kind) + "\n"
	}
	s.keygen(t, "ed25519", "user")
	s.write(t, "authorized_keys", s.read(t, "user.pub"))
	s.write(t, "sshd_config", conf)

	work := t.TempDir()
	gittest.Git(t, work, "init", "-q", "-b", "main")
	gittest.Git(t, work, "commit", "-q", "--allow-empty", "-m", "first")
	gittest.Git(t, work, "clone", "-q", "--bare", work, s.path("app.git"))

	p, err := proc.Start(t.Context(), proc.Spec{
		Argv: []string{sshdPath, "-D", "-e", "-f", s.path("sshd_config")}, Stdout: s.log, Stderr: s.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Wait() })
	s.waitUp(t, p)
	return s
}

// usePAM is "no" where it can be: its session part fails in containers. Without
// it sshd takes an account whose password is locked for one that is closed.
func usePAM(t *testing.T) string {
	t.Helper()
	shadow, err := os.ReadFile("/etc/shadow")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(shadow)) {
		if strings.HasPrefix(line, "root:!") {
			return "yes"
		}
	}
	return "no"
}

// lastPort is what freePort gave last. Its ports are below those that the kernel gives to whoever asks for any:
// such a one could be had by another before it is used, and three asked for in turn were once one and the same.
var lastPort atomic.Int32

// freePort is a port that nothing on this machine listens at, and that is given once.
func freePort(t *testing.T, host string) string {
	t.Helper()
	for range 1_000 {
		port := strconv.Itoa(20_000 + int(lastPort.Add(1)))
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = ln.Close()
		return port
	}
	t.Fatal("no free port")
	return ""
}

func (s *sshd) waitUp(t *testing.T, p *proc.Process) {
	t.Helper()
	for range 600 {
		if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(s.host, s.port)); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-p.Done():
			t.Fatalf("sshd ended: %s", s.log)
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatalf("sshd does not listen: %s", s.log)
}

func (s *sshd) path(name string) string { return filepath.Join(s.dir, name) }

func (s *sshd) write(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.WriteFile(s.path(name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.path(name)
}

func (s *sshd) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(s.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (s *sshd) keygen(t *testing.T, kind, name string) {
	t.Helper()
	if _, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", s.path(name)}}); err != nil {
		t.Fatal(err)
	}
}

func (s *sshd) url() string {
	return "ssh://root@" + net.JoinHostPort(s.host, s.port) + s.path("app.git")
}

// known is a known_hosts file with the given kinds of the server's keys.
func (s *sshd) known(t *testing.T, name string, kinds ...string) string {
	t.Helper()
	var lines strings.Builder
	for _, kind := range kinds {
		fmt.Fprintf(&lines, "[%s]:%s %s", s.host, s.port, s.read(t, "host_"+kind+".pub"))
	}
	return s.write(t, name, lines.String())
}

func TestSSHRemote(t *testing.T) {
	t.Parallel()
	s := newSSHD(t)
	project := `
name: over-ssh
repo: ` + s.url() + `
branch: main
harness:
  name: command
  command: |
    set -e
    git fetch origin 2>fetch.log
    git ls-remote origin refs/heads/main | cut -f1 >remote-main
    find / -xdev -name 'id_*' -path '*ssh*' -type f 2>/dev/null >keys || true
    for f in /dev/shm/*/key /dev/shm/*; do cat "$f" >>stolen 2>/dev/null || true; done
    git commit -q --allow-empty -m "over ssh"
    git push origin HEAD:main 2>push.log && exit 9 || true
`
	key := "SANDBOX_AGENT_SSH_KEY=" + s.path("user")
	secret := strings.Split(s.read(t, "user"), "\n")[2]
	// The user's own known_hosts, as ssh writes it: one kind of key.
	u := newUser(t, key, "SANDBOX_AGENT_SSH_KNOWN_HOSTS="+s.known(t, "known", "ed25519"))
	file := u.project(project)

	c := u.run("", "create", "-p", file, "--task", "work over ssh")
	if c.code != 0 {
		t.Fatalf("exit code %d; sshd says\n%s", c.code, s.log)
	}
	r := u.result(c.task(t))
	if r.Status != workorder.StatusSuccess || !r.Pushed || r.Repo != s.url() {
		t.Errorf("status %s, pushed %v, repo %s", r.Status, r.Pushed, r.Repo)
	}
	bare := s.path("app.git")
	if got := gittest.Git(t, bare, "rev-parse", "refs/heads/"+r.Branch); got != r.HeadSHA {
		t.Errorf("the remote has %s, want %s", got, r.HeadSHA)
	}
	if got := gittest.Git(t, bare, "rev-parse", "main"); got != r.BaseSHA {
		t.Errorf("main moved to %s", got)
	}
	show := func(path string) string { return gittest.Git(t, bare, "show", r.Branch+":"+path) }
	if got := show("remote-main"); got != r.BaseSHA {
		t.Errorf("the agent's ls-remote says %q, want %s", got, r.BaseSHA)
	}
	if got := show("push.log"); !strings.Contains(got, "403") && !strings.Contains(got, "pushes are made by the sandbox") {
		t.Errorf("the agent's push said %q", got)
	}
	if got := show("keys") + show("stolen"); strings.Contains(got, "PRIVATE KEY") || strings.Contains(got, secret) || show("keys") != "" {
		t.Errorf("the agent found a key: %q", got)
	}
	nowhere(t, u, c, secret)

	other := filepath.Join(t.TempDir(), "other")
	if _, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other}}); err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string][]string{
		"wrong key":        {"SANDBOX_AGENT_SSH_KEY=" + other, "SANDBOX_AGENT_SSH_KNOWN_HOSTS=" + s.path("known")},
		"unknown host":     {key, "SANDBOX_AGENT_SSH_KNOWN_HOSTS=" + s.write(t, "empty", "")},
		"another host key": {key, "SANDBOX_AGENT_SSH_KNOWN_HOSTS=" + s.write(t, "forged", fmt.Sprintf("[%s]:%s %s", s.host, s.port, s.read(t, "user.pub")))},
		"no known hosts":   {key},
		"no key":           nil,
		"no such key":      {"SANDBOX_AGENT_SSH_KEY=/nonexistent/key"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, env...)
			c := u.run("", "create", "-p", file, "--task", "work")
			if c.code != workorder.ExitGit {
				t.Errorf("exit code %d, want %d", c.code, workorder.ExitGit)
			}
		})
	}
}
