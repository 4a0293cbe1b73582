//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// sandboxKind is what holds sandboxes without a task; the zero one is containers.
type sandboxKind struct {
	jail  bool
	plain bool // its user is not root
}

var (
	rootsJail = sandboxKind{jail: true}
	usersJail = sandboxKind{jail: true, plain: true}
)

// plainUID is a user whom this machine need not know.
const plainUID = 54321

func (k sandboxKind) String() string {
	switch {
	case k.plain:
		return "jail of a plain user"
	case k.jail:
		return "jail of root"
	}
	return "container"
}

// up is the command line that makes a sandbox of the kind.
func (k sandboxKind) up(name string, args ...string) []string {
	if k.jail {
		return append([]string{"up", name, "--runtime", "jail"}, args...)
	}
	return append([]string{"up", name, "--image", plainImage}, args...)
}

// spec is runtime and image, as package sandbox names them.
func (k sandboxKind) spec() []string {
	if k.jail {
		return []string{"jail", ""}
	}
	return []string{"container", plainImage}
}

// user is somebody whose sandboxes are of the kind, and who leaves nothing behind.
func (k sandboxKind) user(t *testing.T) *user {
	t.Helper()
	u := newCarefulUser(t)
	u.kind = k
	if k.plain {
		u.plain()
	}
	if k.jail {
		t.Cleanup(u.noJailLeft)
	}
	return u
}

// ofEachKind runs a test on each kind of sandboxes at a time.
func ofEachKind(t *testing.T, test func(t *testing.T, u *user)) {
	t.Helper()
	for _, k := range []sandboxKind{{}, rootsJail, usersJail} {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			test(t, k.user(t))
		})
	}
}

// copyProgram copies a program in a process of its own. A file that this one writes may be open in a child that another test starts at
// that moment, and cannot be run until then (text file busy).
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	if err := proc.Run(t.Context(), proc.Spec{Argv: []string{"install", "-m", "755", from, to}}); err != nil {
		t.Fatal(err)
	}
}

// plain makes the user one without any right of root, with a copy of the program that they can reach.
func (u *user) plain() {
	u.t.Helper()
	dir, err := os.MkdirTemp("", "sandbox-agent-e2e-user-") // the test's own is root's alone
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			u.t.Error(err)
		}
	})
	u.program, u.state, u.dir = filepath.Join(dir, "sandbox-agent"), filepath.Join(dir, "state"), dir
	copyProgram(u.t, bin, u.program)
	if err := os.Chown(dir, plainUID, plainUID); err != nil {
		u.t.Fatal(err)
	}
	setpriv, err := proc.Find("setpriv")
	if err != nil {
		u.t.Fatal(err)
	}
	id := fmt.Sprint(plainUID)
	u.by = []string{setpriv, "--reuid", id, "--regid", id, "--clear-groups"}
	u.env = append(slices.Clone(u.env), "HOME="+dir, "SANDBOX_AGENT_STATE_DIR="+u.state)
}

// noJailLeft removes the user's jails, and checks that nothing of them is left: no folder, no process, no control group.
func (u *user) noJailLeft() {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.t.Context()), time.Minute)
	defer cancel()
	argv := slices.Concat(u.by, []string{bin, "down", "--all"})
	if u.program != "" {
		argv[len(argv)-3] = u.program
	}
	// Without an engine: its sandboxes are others'.
	if _, err := proc.Output(ctx, proc.Spec{Argv: argv, Dir: u.dir, Env: append(slices.Clone(u.env), "DOCKER_HOST=unix:///nowhere")}); proc.ExitCode(err) != workorder.ExitBox {
		u.t.Errorf("down --all without an engine: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Join(u.state, "sandboxes")); err == nil && len(entries) > 0 {
		u.t.Errorf("left in the state folder: %v", entries)
	}
	left := func() (all []string) {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			u.t.Fatal(err)
		}
		for _, p := range lines {
			if b, err := os.ReadFile(p); err == nil && strings.HasPrefix(string(b), u.state) {
				all = append(all, p+" "+string(b))
			}
		}
		return all
	}
	for len(left()) > 0 {
		select {
		case <-ctx.Done():
			u.t.Fatalf("processes are left: %q", left())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// halt ends a sandbox otherwise than by our program.
func (u *user) halt(name string) {
	u.t.Helper()
	if u.kind.jail {
		keeper, _ := u.keeper(name)
		if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
			u.t.Fatal(err)
		}
		return
	}
	if err := eng.ContainerStop(u.t.Context(), "sandbox-agent-sandbox-"+name, container.StopOptions{}); err != nil {
		u.t.Fatal(err)
	}
}

// keeper is the process that holds a jail, and the control groups that it has made.
func (u *user) keeper(name string) (pid int, groups []string) {
	u.t.Helper()
	b, err := os.ReadFile(filepath.Join(u.state, "sandboxes", name, "keeper.json"))
	if err != nil {
		u.t.Fatal(err)
	}
	var k struct {
		PID    int
		Groups []string
	}
	if err := json.Unmarshal(b, &k); err != nil || k.PID <= 1 {
		u.t.Fatalf("%s: %v", b, err)
	}
	return k.PID, k.Groups
}

// A jail whose keeper is killed ends with it, at once and as a whole, and is there again at the next command.
func TestJailKeeperKilled(t *testing.T) {
	t.Parallel()
	for _, k := range []sandboxKind{rootsJail, usersJail} {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			u := k.user(t)
			name := u.sandbox("kept")
			mark := fmt.Sprint(9000000 + os.Getpid()%100000*10 + map[bool]int{true: 1}[k.plain])
			if c := u.run("", "exec", name, "--", "sh", "-c", "echo x >kept; setsid sleep "+mark+" >/dev/null 2>&1 &"); c.code != 0 {
				t.Fatalf("exit code %d", c.code)
			}
			sleeps := func() (n int) {
				lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range lines {
					if b, err := os.ReadFile(p); err == nil && string(b) == "sleep\x00"+mark+"\x00" {
						n++
					}
				}
				return n
			}
			for sleeps() != 1 { // go test's own deadline ends it
				time.Sleep(10 * time.Millisecond)
			}
			_, groups := u.keeper(name)
			if (len(groups) == 0) != k.plain {
				t.Errorf("control groups %q", groups)
			}
			u.halt(name)
			for sleeps() != 0 {
				time.Sleep(10 * time.Millisecond)
			}
			if c := u.run("", "ps", "--sandboxes", "--json"); !strings.Contains(c.stdout, `"state": "stopped"`) {
				t.Errorf("a jail whose keeper is gone: %s", c.stdout)
			}
			if got, code := u.exec(name, "", "--", "cat", "/workspace/kept"); got.Stdout != "x\n" || code != 0 {
				t.Errorf("%+v, exit code %d", got, code)
			}
			u.halt(name)
			if c := u.run("", "down", name); c.code != 0 {
				t.Errorf("exit code %d", c.code)
			}
			for _, g := range groups {
				if _, err := os.Stat(g); err == nil {
					t.Errorf("the control group %s is left", g)
				}
			}
		})
	}
}

// Files in memory leave the guest its own: who fills them is told that there is no room, and the jail goes on.
func TestJailUsedUp(t *testing.T) {
	t.Parallel()
	u := rootsJail.user(t)
	name := u.sandbox("usedup", "--memory", "256m")
	for _, file := range []string{"/tmp/zeros", "/dev/shm/zeros"} {
		if c := u.run("", "exec", name, "--timeout", "60s", "--", "sh", "-c", "touch kept; sleep 1000 & echo $! >pid; head -c 400m /dev/zero >"+file); c.code != 1 {
			t.Errorf("%s: exit code %d", file, c.code)
		}
	}
	if _, code := u.exec(name, "", "--", "sh", "-c", "test -e kept && kill -0 $(cat pid)"); code != 0 {
		t.Errorf("afterwards: exit code %d", code)
	}
}

// It ends when nobody has used it, and after its time; what it had stays.
func TestJailIdle(t *testing.T) {
	t.Parallel()
	u := rootsJail.user(t)
	for _, row := range []struct{ name, flag string }{{"idle", "--idle"}, {"ttl", "--ttl"}} {
		name := u.sandbox(row.name, row.flag, "1s")
		if got, code := u.exec(name, "", "--", "sh", "-c", "echo x >f"); code != 0 {
			t.Errorf("%+v", got)
		}
		keeper, _ := u.keeper(name)
		for syscall.Kill(keeper, 0) == nil && !dead(keeper) { // go test's own deadline ends it
			time.Sleep(20 * time.Millisecond)
		}
		if got, code := u.exec(name, "", "--", "cat", "f"); got.Stdout != "x\n" || code != 0 {
			t.Errorf("%s: %+v, exit code %d", row.name, got, code)
		}
	}
}

// dead reports whether a process is one that nobody has waited for yet.
func dead(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// Folders of this machine are there as they were asked for.
func TestJailMounts(t *testing.T) {
	t.Parallel()
	for _, k := range []sandboxKind{rootsJail, usersJail} {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			u := k.user(t)
			rw, ro := filepath.Join(u.dir, "rw"), filepath.Join(u.dir, "ro")
			for _, dir := range []string{rw, ro} {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "f"), []byte("here"), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(dir, plainUID, plainUID); err != nil {
					t.Fatal(err)
				}
			}
			name := u.sandbox("mounts", "--mount", rw+":/work/deep/rw", "--mount", ro+":/work/ro:ro")
			if got, code := u.exec(name, "", "--", "sh", "-c", "cat /work/deep/rw/f /work/ro/f; echo new >/work/deep/rw/new; touch /work/ro/new"); got.Stdout != "herehere" || code == 0 {
				t.Errorf("%+v, exit code %d", got, code)
			}
			st, err := os.Stat(filepath.Join(rw, "new"))
			if err != nil {
				t.Fatal(err)
			}
			if owner := st.Sys().(*syscall.Stat_t).Uid; owner != plainUID {
				t.Errorf("what it wrote is of user %d", owner)
			}
			if _, err := os.Stat(filepath.Join(ro, "new")); err == nil {
				t.Error("it wrote into a folder that is read-only")
			}
		})
	}
}

// Nothing between commands and the machine, where the configuration allows it alone.
func TestHostRuntime(t *testing.T) {
	t.Parallel()
	u := usersJail.user(t)
	if c := u.run("", "up", "bare", "--runtime", "host"); c.code != workorder.ExitInvalid || len(u.sandboxesOf("bare")) != 0 {
		t.Errorf("without a word in the configuration: exit code %d", c.code)
	}
	config := filepath.Join(u.dir, ".config", "sandbox-agent", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("security: {require_sandbox: false}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--network", "none"}, {"--memory", "64m"}, {"--mount", "/usr:/x:ro"}, {"--image", plainImage}, {"--user", "1"}} {
		if c := u.run("", append([]string{"up", "bare", "--runtime", "host"}, args...)...); c.code != workorder.ExitInvalid {
			t.Errorf("%q: exit code %d", args, c.code)
		}
	}
	if c := u.run("", "up", "bare", "--runtime", "noop"); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	mark := fmt.Sprint(8000000 + os.Getpid()%100000)
	if got, code := u.exec("bare", "", "--", "sh", "-c", "id -u; pwd; setsid sleep "+mark+" >/dev/null 2>&1 & exit 0"); code != 0 || got.Stdout != fmt.Sprintf("%d\n%s\n", plainUID, filepath.Join(u.state, "sandboxes", "bare", "workspace")) {
		t.Errorf("%+v, exit code %d", got, code)
	}
	if c := u.run("", "up", "bare", "--runtime", "jail"); c.code != workorder.ExitUsage {
		t.Errorf("a name that is taken by another kind: exit code %d", c.code)
	}
	u.halt("bare") // its keeper is killed: the guest ends what commands have left
	for {
		if _, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"pgrep", "-f", "^sleep " + mark}}); proc.ExitCode(err) == 1 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// One clear error each, with nothing made.
func TestJailBadInput(t *testing.T) {
	t.Parallel()
	u := usersJail.user(t)
	for _, row := range []struct {
		args []string
		want int
	}{
		{[]string{"up", "x", "--runtime", "jail", "--image", plainImage}, workorder.ExitInvalid},
		{[]string{"up", "x", "--runtime", "jail", "--user", "0"}, workorder.ExitInvalid},
		{[]string{"up", "x", "--runtime", "jail", "--cpus", "1"}, workorder.ExitInvalid},
		{[]string{"up", "x", "--runtime", "jail", "--network", "restricted"}, workorder.ExitInvalid},
		{[]string{"up", "x", "--runtime", "jail", "--oci-runtime", "runsc"}, workorder.ExitInvalid},
		{[]string{"up", "x", "--runtime", "jail", "--mount", "/no/such:/x"}, workorder.ExitUsage},
		{[]string{"up", "x", "--runtime", "jail", "--mount", "/:/x"}, workorder.ExitUsage},
		{[]string{"up", "x", "--runtime", "jail", "--mount", "/usr:/usr/no/such/place"}, workorder.ExitGeneral},
		{[]string{"up", "x", "--runtime", "nspawn"}, workorder.ExitInvalid},
		{[]string{"up", "x", "--runtime", "podman"}, workorder.ExitInvalid},
		{[]string{"up", "x", "--runtime", "nope"}, workorder.ExitUsage},
		{[]string{"up", "../x", "--runtime", "jail"}, workorder.ExitUsage},
	} {
		if c := u.run("", row.args...); c.code != row.want || strings.Count("\n"+c.stderr, "\nerror: ") != 1 {
			t.Errorf("%q: exit code %d, want %d", row.args, c.code, row.want)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(u.state, "sandboxes")); err == nil && len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
	u.env = append(u.env, "PATH=/nowhere")
	if c := u.run("", "up", "x", "--runtime", "jail"); c.code != workorder.ExitInvalid || !strings.Contains(c.stderr, "bubblewrap") {
		t.Errorf("without bubblewrap: exit code %d", c.code)
	}
	// The rule of `up` takes a container next, and this user may not use the engine.
	if c := u.run("", "up", "x"); c.code != workorder.ExitBox {
		t.Errorf("without bubblewrap, an image and a runtime: exit code %d", c.code)
	}
}
