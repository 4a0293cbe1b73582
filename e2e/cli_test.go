//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// cliLimit bounds one call of the program; a run that needs longer hangs. At night five real projects are compiled at a time, some of which
// took ten minutes so on two cores.
var cliLimit = map[bool]time.Duration{false: 10 * time.Minute, true: 40 * time.Minute}[nightly]

// user is somebody with a state folder and an environment of their own.
type user struct {
	t     *testing.T
	state string
	env   []string
	dir   string
	// terminal says that programs run at a terminal, on which keys are pressed.
	terminal bool
	// by is what the program is called through.
	by []string
	// program is the user's own copy; "" means bin.
	program string
	// kind is what their sandboxes without a task are; the zero one is containers.
	kind sandboxKind
}

func newUser(t *testing.T, env ...string) *user {
	t.Helper()
	u := &user{t: t, state: t.TempDir(), dir: t.TempDir()}
	counted.Of(u.state, t.Name())
	u.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SANDBOX_AGENT_STATE_DIR=" + u.state, "LC_ALL=C.UTF-8",
		"DOCKER_HOST=" + os.Getenv("DOCKER_HOST"), "SANDBOX_AGENT_VERBOSE=true", // tests wait for what an agent says
	}, env...)
	return u
}

// call is one finished call of the program.
type call struct {
	code   int
	stdout string
	stderr string
}

// run calls the program and waits for it.
func (u *user) run(stdin string, args ...string) call {
	u.t.Helper()
	p := u.start(stdin, args...)
	return p.wait()
}

type started struct {
	*proc.Process
	t           *testing.T
	args        []string
	out, errOut *syncBuffer
	cancel      context.CancelFunc
	keys        *os.File // of a user who has a terminal
}

// start calls the program and returns at once.
func (u *user) start(stdin string, args ...string) *started {
	u.t.Helper()
	return u.startWith(strings.NewReader(stdin), args...)
}

// startWith is start with an input that may go on.
func (u *user) startWith(stdin io.Reader, args ...string) *started {
	u.t.Helper()
	ctx, cancel := context.WithTimeoutCause(u.t.Context(), cliLimit, errors.New("the call took longer than "+cliLimit.String()))
	s := &started{t: u.t, args: args, out: &syncBuffer{}, errOut: &syncBuffer{}, cancel: cancel}
	spec := proc.Spec{
		Argv: slices.Concat(u.by, []string{cmp.Or(u.program, bin)}, args), Dir: u.dir, Env: u.env, Stdin: stdin, Stdout: s.out, Stderr: s.errOut,
	}
	var err error
	if u.terminal {
		spec.Argv = []string{"script", "-q", "-e", "-c", "exec " + text.Shell(spec.Argv...), "/dev/null"}
		spec.Env = append(slices.Clone(u.env), "TERM=dumb", "SHELL=/bin/sh")
		var in *os.File
		if in, s.keys, err = os.Pipe(); err != nil {
			u.t.Fatal(err)
		}
		spec.Stdin = in
		u.t.Cleanup(func() { s.keys.Close(); in.Close() })
	}
	s.Process, err = proc.Start(ctx, spec)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(cancel)
	return s
}

// insist presses Ctrl-C, and again once the program says that it stops, until it says that it kills the box.
func (s *started) insist() {
	s.t.Helper()
	const key = "\x03"
	press := func() {
		if _, err := s.keys.WriteString(key); err != nil {
			s.t.Error(err)
		}
	}
	press()
	s.waitFor("Ctrl-C again")
	for range 100 {
		press()
		select {
		case <-s.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		if strings.Contains(s.out.String(), "the sandbox is killed") {
			return
		}
	}
	s.t.Errorf("Ctrl-C does not kill the box:\n%s", s.out)
}

func (s *started) wait() call {
	s.t.Helper()
	err := s.Wait()
	s.cancel()
	c := call{code: proc.ExitCode(err), stdout: s.out.String(), stderr: s.errOut.String()}
	s.t.Logf("sandbox-agent %s\nexit code %d\n%s%s", strings.Join(s.args, " "), c.code, c.stdout, c.stderr)
	return c
}

// waitFor waits until the program has printed text (on either stream).
func (s *started) waitFor(text string) {
	s.t.Helper()
	for range 1200 {
		if strings.Contains(s.out.String(), text) || strings.Contains(s.errOut.String(), text) {
			return
		}
		select {
		case <-s.Done():
			s.t.Fatalf("ended without %q:\n%s%s", text, s.out, s.errOut)
		case <-time.After(100 * time.Millisecond):
		}
	}
	s.t.Fatalf("no %q within two minutes:\n%s%s", text, s.out, s.errOut)
}

var taskID = regexp.MustCompile(`T-[0-9A-Z]{8}`)

// task is the id of the task that the output names first.
func (c call) task(t *testing.T) string {
	t.Helper()
	id := taskID.FindString(c.stdout + c.stderr)
	if id == "" {
		t.Fatalf("no task id in %q %q", c.stdout, c.stderr)
	}
	return id
}

// result reads a task's result from the state folder, and checks that nothing of the task is left on the engine.
func (u *user) result(id string) *workorder.Result {
	u.t.Helper()
	dir := filepath.Join(u.state, "tasks", id)
	c := u.run("", "result", id, "--path")
	if c.code == 0 && strings.TrimSpace(c.stdout) != "" {
		dir = strings.TrimSpace(c.stdout)
	}
	b, err := os.ReadFile(filepath.Join(dir, workorder.ResultFile))
	if err != nil {
		u.t.Fatal(err)
	}
	r, err := workorder.DecodeResult(b)
	if err != nil {
		u.t.Fatal(err)
	}
	if left := ours(u.t, id); len(left) != 0 {
		u.t.Errorf("a container of %s is left: %s", id, left[0].Status)
	}
	return r
}

// project writes a project file into the user's folder and returns its path.
func (u *user) project(yaml string) string {
	u.t.Helper()
	path := filepath.Join(u.t.TempDir(), "project.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o644); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// repo makes a local repository with the given files on main.
func (u *user) repo(files map[string]string) string {
	u.t.Helper()
	dir := u.t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			u.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			u.t.Fatal(err)
		}
	}
	gittest.Git(u.t, dir, "init", "-q", "-b", "main")
	gittest.Git(u.t, dir, "add", "-A")
	gittest.Git(u.t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	return dir
}

func step(t *testing.T, r *workorder.Result, name workorder.StepName) workorder.Step {
	t.Helper()
	if s := r.Step(name); s != nil {
		return *s
	}
	t.Fatalf("the result has no step %s: %+v", name, r.Steps)
	return workorder.Step{}
}

// syncBuffer is a buffer that is read while the program writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// resultPath is where the program says a task's result lies.
func resultPath(t *testing.T, u *user, id string) string {
	t.Helper()
	c := u.run("", "result", id, "--path")
	if c.code != 0 {
		t.Fatalf("result --path: exit code %d", c.code)
	}
	p := strings.TrimSpace(c.stdout)
	if filepath.Base(p) != workorder.ResultFile {
		p = filepath.Join(p, workorder.ResultFile)
	}
	return p
}

// nowhere checks that no secret is on the screen or in the run's folder.
func nowhere(t *testing.T, u *user, c call, secrets ...string) {
	t.Helper()
	dir := filepath.Dir(resultPath(t, u, c.task(t)))
	for _, secret := range secrets {
		if strings.Contains(c.stdout+c.stderr, secret) {
			t.Errorf("the CLI printed %s", secret)
		}
		err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			if strings.Contains(string(b), secret) {
				t.Errorf("%s holds a secret", p)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
