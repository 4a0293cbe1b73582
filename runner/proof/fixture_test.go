package proof_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/runner/proof"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const secret = "s3cret-of-the-test"

// box is a task's surroundings: a work tree of the agent's with a history, our mirror
// of what the remote had, and our view of both.
type box struct {
	proof.Config
	t    *testing.T
	base string

	mu     sync.Mutex
	events []workorder.Event
}

// nextUID gives each test a user of its own, so that no test stops another's processes.
var nextUID atomic.Uint32

// newBox commits the files as base.
func newBox(t *testing.T, files map[string]string) *box {
	t.Helper()
	b := &box{t: t}
	dir := t.TempDir()
	b.Workspace, b.Home, b.Dir, b.OutDir = filepath.Join(dir, "workspace"), filepath.Join(dir, "home"), filepath.Join(dir, "ours"), filepath.Join(dir, "out")
	for _, d := range []string{b.Workspace, b.Home, b.OutDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, b.Workspace, "init", "-q", "-b", "main", "--template=")
	b.base = b.commit(files)
	mirror, outbox := filepath.Join(dir, "mirror.git"), filepath.Join(dir, "outbox.git")
	gittest.Git(t, dir, "init", "-q", "--bare", "--template=", mirror)
	gittest.Git(t, mirror, "fetch", "-q", b.Workspace, "+refs/heads/*:refs/heads/*")
	gittest.Git(t, dir, "init", "-q", "--bare", "--template=", outbox)
	b.put(filepath.Join(outbox, "objects/info/alternates"), mirror+"/objects\n"+b.Workspace+"/.git/objects\n")
	b.Mirror, b.Objects = git.Repo{Dir: mirror, Bare: true}, git.Repo{Dir: outbox, Bare: true}
	b.Order = &workorder.Order{Branch: "main", CloneURL: "https://example.org/r.git"}
	b.Env = []string{"PATH=" + b.Home + "/.local/bin:/usr/local/go/bin:/usr/bin:/bin", "HOME=" + b.Home, "PWD=/", "SANDBOX_AGENT_WORKSPACE=" + b.Workspace, "GOTOOLCHAIN=local", "GOPROXY=off", "GOFLAGS=-mod=mod"}
	b.Redact = redact.Named(map[string]string{"TOKEN": secret})
	b.Emit = func(e workorder.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	}
	b.Shell = b.shell
	return b
}

func (b *box) shell(ctx context.Context, c proof.CommandLine) proof.Outcome {
	r := runner.Shell(ctx, runner.Config{Order: b.Order, Workspace: c.Dir, OutDir: b.OutDir, User: b.User, Env: c.Env, Emit: b.Emit, Redact: b.Redact}, runner.ShellCommand{Name: c.Name, Run: c.Run, Log: c.Log})
	return proof.Outcome{ExitCode: r.ExitCode, Duration: r.Duration, Err: r.Err, Warning: r.Warning}
}

// asOther makes commands run as a user who is not us, where that can be.
func (b *box) asOther() {
	b.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	uid := 64100 + nextUID.Add(1)
	b.User = &proc.Credential{UID: uid, GID: uid}
	for up := b.Home; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, d := range []string{b.Workspace, b.Home} {
		err := filepath.WalkDir(d, func(p string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(p, int(uid), int(uid))
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *box) put(path, content string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	mode := os.FileMode(0o644)
	if strings.HasPrefix(content, "#!") {
		mode = 0o755
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		b.t.Fatal(err)
	}
}

// commit writes files (an empty content deletes one) and commits everything.
func (b *box) commit(files map[string]string) string {
	b.t.Helper()
	for name, content := range files {
		p := filepath.Join(b.Workspace, name)
		if content == "" {
			if err := os.Remove(p); err != nil {
				b.t.Fatal(err)
			}
			continue
		}
		b.put(p, content)
	}
	gittest.Git(b.t, b.Workspace, "add", "-A")
	return b.record()
}

// record commits what is in the index.
func (b *box) record() string {
	b.t.Helper()
	gittest.Git(b.t, b.Workspace, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "work")
	return strings.TrimSpace(gittest.Git(b.t, b.Workspace, "rev-parse", "HEAD"))
}

func (b *box) validate(commands ...string) {
	b.Order.Validate = nil
	for i := 0; i < len(commands); i += 2 {
		b.Order.Validate = append(b.Order.Validate, workorder.Check{Name: commands[i], Run: commands[i+1]})
	}
}

// prove runs a proof and looks that nothing is left of it.
func (b *box) prove(ctx context.Context, head string) *workorder.Proof {
	b.t.Helper()
	before := b.names(b.Home)
	p, err := proof.Run(ctx, b.Config, b.base, head)
	if err != nil {
		b.t.Fatal(err)
	}
	if now := b.names(b.Home); !slices.Equal(before, now) {
		b.t.Errorf("the home has %q, had %q", now, before)
	}
	if left := b.names(b.Dir); len(left) > 0 {
		b.t.Errorf("our folder has %q", left)
	}
	return p
}

func (b *box) names(dir string) (names []string) {
	b.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (b *box) log(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.OutDir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

func (b *box) warnings() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Type == workorder.EventWarning {
			list = append(list, e.Text)
		}
	}
	return list
}

func kinds(p *workorder.Proof) (list []string) {
	for _, f := range p.TestFindings {
		if !slices.Contains(list, f.Kind) {
			list = append(list, f.Kind)
		}
	}
	return list
}
