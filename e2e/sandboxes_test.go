//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// plainImage has nothing of ours: what every image here is built on.
const plainImage = "sandbox-agent/base:debian-trixie"

type execAnswer struct {
	ID          string `json:"id"`
	Sandbox     string `json:"sandbox"`
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	ExitCode    int    `json:"exit_code"`
	TimedOut    bool   `json:"timed_out"`
	OutOfMemory bool   `json:"out_of_memory"`
	Truncated   bool   `json:"truncated"`
}

// sandbox makes one that is removed at the test's end.
func (u *user) sandbox(name string, args ...string) string {
	u.t.Helper()
	name = fmt.Sprintf("%s-%s-%d", name, u.kind.spec()[0], os.Getpid()) // a name is given once, over all kinds
	if !u.kind.jail {                                                   // those its user's clean-up removes
		u.claim(name)
	}
	if c := u.run("", u.kind.up(name, args...)...); c.code != 0 {
		u.t.Fatalf("exit code %d", c.code)
	}
	return name
}

// claim is a sandbox's name that is removed at the test's end.
func (u *user) claim(name string) string {
	u.removeLater(name)
	return name
}

func (u *user) exec(name, stdin string, args ...string) (answer execAnswer, code int) {
	u.t.Helper()
	c := u.run(stdin, append([]string{"exec", name, "--json"}, args...)...)
	if err := json.Unmarshal([]byte(c.stdout), &answer); err != nil {
		u.t.Fatalf("exit code %d, %v", c.code, err)
	}
	return answer, c.code
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	ofEachKind(t, func(t *testing.T, u *user) {
		t.Helper()
		limits := []string{"--memory", "96m", "--pids", "128", "--cpus", "2"}
		if u.kind.plain {
			limits = limits[:4]
		}
		testSandbox(t, u, u.sandbox("plain", append(limits, "--network", "none")...))
	})
}

func testSandbox(t *testing.T, u *user, name string) {
	t.Helper()
	got, code := u.exec(name, "hi\n", "--env", "A=b", "--workdir", "/tmp", "--timeout", "30s", "--", "sh", "-c", "cat; pwd; echo $A; echo e >&2; exit 7")
	if got.Stdout != "hi\n/tmp\nb\n" || got.Stderr != "e\n" || got.ExitCode != 7 || code != 7 {
		t.Errorf("%+v, exit code %d", got, code)
	}
	if c := u.run("", "exec", name, "--timeout", "1s", "--", "sh", "-c", "setsid sleep 987 & env -i setsid -f sleep 987; (sleep 987 &); sleep 987"); c.code != 124 {
		t.Errorf("timeout: exit code %d", c.code)
	}
	processes := func() string {
		got, _ := u.exec(name, "", "--", "sh", "-c", "cat /proc/[0-9]*/comm | sort | uniq -c | grep -E 'sleep|bomb|bash'; true")
		return got.Stdout
	}
	if left := processes(); left != "" {
		t.Errorf("left after the timeout: %s", left)
	}
	// The command of a caller that is killed ends, as does what it started.
	s := u.start("", "exec", name, "--", "sh", "-c", "setsid sleep 986 & echo begun; sleep 986")
	s.waitFor("begun")
	s.Signal(syscall.SIGKILL)
	s.wait()
	for until := time.Now().Add(time.Minute); processes() != ""; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("left of a killed caller: %s", processes())
		}
	}
	if got, code := u.exec(name, "", "--timeout", "5s", "--", "sh", "-c", "cp /bin/sh /tmp/bomb; echo '/tmp/bomb /tmp/b & /tmp/bomb /tmp/b & wait' >/tmp/b; /tmp/bomb /tmp/b & while :; do wait; done"); code != 124 || !got.TimedOut {
		t.Errorf("fork bomb: %+v, exit code %d", got.ExitCode, code)
	}
	// One that is never refused for good, so that it takes each process that is free at once: whoever ends it needs no new thread.
	for range 4 {
		if got, code := u.exec(name, "", "--timeout", "3s", "--", "bash", "-c", ":(){ :|:& };:; sleep 60"); code != 124 || !got.TimedOut {
			t.Errorf("fork bomb of a shell: %+v, exit code %d", got, code)
		}
	}
	if left := processes(); left != "" {
		t.Errorf("left of the fork bombs: %s", left)
	}
	// One whose first process ends at once leaves the rest behind; it does not keep others out for long.
	u.run("", "exec", name, "--timeout", "20s", "--", "sh", "-c", "exec >/dev/null 2>&1; b() { b | b & b; }; b")
	gone := func() bool { // a command may begin while the bomb has just lost some of its processes
		got, code := u.exec(name, "", "--", "sh", "-c", "ls -d /proc/[0-9]* | wc -l")
		n, err := strconv.Atoi(strings.TrimSpace(got.Stdout))
		return code == 0 && err == nil && n < 20
	}
	for until := time.Now().Add(time.Minute); !gone(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("a fork bomb that was left behind keeps others out")
		}
	}
	// A process of a plain user's jail is given no more than the limit; two that have more together are found by the jail's keeper.
	greedy := "tail /dev/zero"
	if u.kind.plain {
		for until := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
			got, code := u.exec(name, "", "--", "tail", "/dev/zero")
			if code != 0 && !got.OutOfMemory {
				break
			}
			if code == 0 || time.Now().After(until) { // what the bomb has left has memory, too, for a moment
				t.Errorf("too much memory of one process: %+v, exit code %d", got, code)
				break
			}
		}
		greedy = "perl -e '$x = \"x\" x 5e7; sleep 60' & exec perl -e '$x = \"x\" x 5e7; sleep 60'"
	}
	if got, code := u.exec(name, "", "--timeout", "30s", "--", "sh", "-c", greedy); code != 137 || !got.OutOfMemory {
		t.Errorf("too much memory: %+v, exit code %d", got, code)
	}
	if got, code := u.exec(name, "", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' e >&2"); code != 0 || !got.Truncated ||
		len(got.Stdout) > 1<<20+100 || len(got.Stderr) > 1<<20+100 || len(got.Stdout) < 1<<20 {
		t.Errorf("much output: %d and %d bytes, %t, exit code %d", len(got.Stdout), len(got.Stderr), got.Truncated, code)
	}
	const interfaces = `sed -n 's/^ *\([^ :]*\):.*/\1/p' /proc/net/dev`
	if got, code := u.exec(name, "", "--", "sh", "-c", interfaces); got.Stdout != "lo\n" || code != 0 {
		t.Errorf("network none: %q", got.Stdout)
	}
	for _, row := range []struct {
		argv []string
		want int
	}{{[]string{"no-such-program"}, 127}, {[]string{"/etc/passwd"}, 126}, {[]string{"sh", "-c", "kill -KILL $$"}, 137}} {
		if c := u.run("", append([]string{"exec", name, "--"}, row.argv...)...); c.code != row.want {
			t.Errorf("%q: exit code %d, want %d", row.argv, c.code, row.want)
		}
	}
	// What the guest is made of is root's, and its socket too.
	if got, _ := u.exec(name, "", "--", "sh", "-c", "grep -E 'CapBnd|NoNewPrivs' /proc/self/status"); !strings.Contains(got.Stdout, "NoNewPrivs:\t1") {
		t.Errorf("%q", got.Stdout)
	}

	// It keeps its files over a stop, by whomever.
	if _, code := u.exec(name, "", "--", "sh", "-c", "echo kept >$HOME/file"); code != 0 {
		t.Errorf("write a file: exit code %d", code)
	}
	u.halt(name)
	if got, code := u.exec(name, "", "--", "sh", "-c", "cat $HOME/file"); got.Stdout != "kept\n" || code != 0 {
		t.Errorf("after a stop: %q, exit code %d", got.Stdout, code)
	}
	if c := u.run("", "reset", name); c.code != 0 {
		t.Errorf("reset: exit code %d", c.code)
	}
	want := "lo\n128\n"
	if u.kind.plain {
		want = "lo\n" // it has no control group
	}
	if got, code := u.exec(name, "", "--", "sh", "-c", "ls $HOME; "+interfaces+"; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null; true"); got.Stdout != want || code != 0 {
		t.Errorf("after a reset: %q, exit code %d", got.Stdout, code)
	}
}

// A command of another user than root reaches nothing of the guest's, and has no capability.
func TestSandboxUser(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := u.sandbox("user", "--user", "1000:1000", "--network", "none")
	for attempt, script := range map[string]string{
		"list the guest's folder":      "ls /.sandbox-agent",
		"read its configuration":       "cat /.sandbox-agent/config.json",
		"reach its socket":             "test -e /.sandbox-agent/wire.sock",
		"run it":                       "/.sandbox-agent/guest version",
		"look into the first process":  "ls -l /proc/1/fd/",
		"look into the server":         "for p in /proc/[0-9]*; do if [ \"$(tr '\\0' ' ' <$p/cmdline)\" = 'guest serve ' ]; then ls -l $p/fd/ || exit 1; found=1; fi; done; test -n \"$found\"",
		"end the first process":        "kill -KILL 1",
		"end every process of others":  "kill -KILL -1; for p in /proc/[0-9]*; do if [ \"$(tr '\\0' ' ' <$p/cmdline)\" = 'guest serve ' ]; then exit 1; fi; done",
		"write outside of its places":  "touch /etc/x",
		"become root":                  "su -c true root </dev/null",
		"have a capability":            "! grep -q '^CapEff:.0*$' /proc/self/status",
		"gain privileges":              "! grep -q '^NoNewPrivs:.1$' /proc/self/status",
		"make a namespace":             "unshare -U true",
		"mount":                        "mount -t tmpfs x /tmp",
		"see a process of the machine": "test $(ls -d /proc/[0-9]* | wc -l) -gt 20",
	} {
		if got, code := u.exec(name, "", "--", "sh", "-c", script); code == 0 {
			t.Errorf("it could %s: %s", attempt, got.Stdout)
		}
	}
	if got, code := u.exec(name, "", "--", "id", "-u"); got.Stdout != "1000\n" || code != 0 {
		t.Errorf("afterwards: %q, exit code %d", got.Stdout, code)
	}
}

// What is started in the background is there for whoever comes later, whole and once.
func TestSandboxBackground(t *testing.T) {
	t.Parallel()
	ofEachKind(t, func(t *testing.T, u *user) {
		t.Helper()
		testBackground(t, u, u.sandbox("back"))
	})
}

func testBackground(t *testing.T, u *user, name string) {
	t.Helper()
	var want strings.Builder
	for i := range 100 {
		fmt.Fprintln(&want, i+1)
	}
	c := u.run("", "exec", name, "--background", "--", "sh", "-c", "for i in $(seq 100); do echo $i; sleep 0.02; done; exit 3")
	id := strings.TrimSpace(c.stdout)
	if c.code != 0 || id == "" {
		t.Fatalf("exit code %d", c.code)
	}
	for _, args := range [][]string{{name}, {name, id[:6]}, {name, id, "--from", "0"}} {
		if c := u.run("", append([]string{"attach"}, args...)...); c.code != 3 || c.stdout != want.String() {
			t.Errorf("attach %q: exit code %d, %d bytes", args, c.code, len(c.stdout))
		}
	}
	if c := u.run("", "attach", name, "--from", "4"); c.stdout != want.String()[4:] {
		t.Errorf("from byte 4: %d bytes", len(c.stdout))
	}
	if c := u.run("", "attach", name, "ZZZZ"); c.code != workorder.ExitNotFound {
		t.Errorf("no such command: exit code %d", c.code)
	}
}

// One clear error each, with nothing made.
func TestSandboxBadInput(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := fmt.Sprintf("bad-%d", os.Getpid())
	up := func(args ...string) []string { return append([]string{"up", name, "--image", plainImage}, args...) }
	for _, row := range []struct {
		args []string
		want int
	}{
		{[]string{"up", "Not_A_Name!", "--image", plainImage}, workorder.ExitUsage},
		{[]string{"up", name, "--image", "no.such/image:1"}, workorder.ExitNotFound},
		{[]string{"up"}, workorder.ExitUsage},
		{up("--memory", "0x"), workorder.ExitUsage},
		{up("--memory", "-1g"), workorder.ExitUsage},
		{up("--memory", "512"), workorder.ExitUsage},
		{up("--memory", "1t"), workorder.ExitUsage},
		{up("--memory", "0m"), workorder.ExitUsage},
		{up("--memory", "1m"), workorder.ExitUsage},
		{up("--cpus", "1.0abc"), workorder.ExitUsage},
		{up("--cpus", "-1"), workorder.ExitUsage},
		{up("--pids", "3"), workorder.ExitUsage},
		{up("--network", "restricted"), workorder.ExitInvalid},
		{up("--env", "A"), workorder.ExitUsage},
		{up("--user", "nobody-here"), workorder.ExitGeneral},
		{up("--oci-runtime", "nope"), workorder.ExitInvalid},
		{[]string{"exec", name, "--", "true"}, workorder.ExitNotFound},
		{[]string{"exec", name}, workorder.ExitUsage},
		{[]string{"exec", name, "--shell", "python", "--", "1"}, workorder.ExitUsage},
		{[]string{"exec", name, "--image", plainImage, "--", "true"}, workorder.ExitUsage},
		{[]string{"exec", "--"}, workorder.ExitUsage},
		{[]string{"exec", "T-00000000", "--", "true"}, workorder.ExitNotFound},
		{[]string{"exec", "T-00000000", "--timeout", "1s", "--", "true"}, workorder.ExitUsage},
		{[]string{"shell", name}, workorder.ExitNotFound},
		{[]string{"status", name}, workorder.ExitNotFound},
		{[]string{"inspect", name}, workorder.ExitNotFound},
		{[]string{"inspect", name, "--history"}, 0}, // it has the failed calls of up above
		{[]string{"inspect", name + "-2", "--history"}, workorder.ExitNotFound},
		{[]string{"logs", name}, workorder.ExitNotFound},
		{[]string{"stop", name}, workorder.ExitNotFound},
		{[]string{"resume", name}, workorder.ExitNotFound},
		{[]string{"rm", name}, workorder.ExitNotFound},
		{[]string{"ports", name}, workorder.ExitNotFound},
		{[]string{"reset", name}, workorder.ExitNotFound},
		{[]string{"fork", name, name + "-2"}, workorder.ExitNotFound},
		{[]string{"snapshot", "create", name}, workorder.ExitNotFound},
		{[]string{"snapshot", "restore", name, "x"}, workorder.ExitNotFound},
		{[]string{"snapshot", "rm", name, "x"}, workorder.ExitNotFound},
		{[]string{"down"}, workorder.ExitUsage},
		{[]string{"down", name}, workorder.ExitNotFound},
	} {
		if c := u.run("", row.args...); c.code != row.want || (strings.Count("\n"+c.stderr, "\nerror: ") == 1) != (row.want != 0) {
			t.Errorf("%q: exit code %d, want %d", row.args, c.code, row.want)
		}
	}
	if left := u.sandboxesOf(name); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	ok := u.sandbox("good")
	if c := u.run("", "up", ok, "--image", plainImage); c.code != workorder.ExitUsage {
		t.Errorf("the same name again: exit code %d", c.code)
	}
	for _, row := range []struct {
		args []string
		want int
	}{
		{[]string{"exec", ok, "--workdir", "/no/such", "--", "true"}, workorder.ExitNotFound},
		{[]string{"exec", ok, "--env", "=x", "--", "true"}, workorder.ExitUsage},
		{append([]string{"exec", ok, "--", "sh", "-c", "exit $#", "x"}, slices.Repeat([]string{strings.Repeat("x", 5<<10)}, 40)...), 40}, // 200 KB
	} {
		if c := u.run("", row.args...); c.code != row.want {
			t.Errorf("%.80q: exit code %d, want %d", row.args, c.code, row.want)
		}
	}
}

// sandboxesOf are the containers or folders of sandboxes whose names contain a text.
func (u *user) sandboxesOf(part string) (names []string) {
	u.t.Helper()
	if u.kind.jail {
		entries, err := os.ReadDir(filepath.Join(u.state, "sandboxes"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			u.t.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), part) {
				names = append(names, e.Name())
			}
		}
		return names
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.t.Context()), time.Minute)
	defer cancel()
	all, err := eng.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "sandbox-agent.sandbox"))})
	if err != nil {
		u.t.Fatal(err)
	}
	for _, c := range all {
		if name := c.Labels["sandbox-agent.sandbox"]; strings.Contains(name, part) {
			names = append(names, name)
		}
	}
	return names
}

// A program outside of the repository makes sandboxes by the public package alone; killed, it leaves none.
func TestSandboxProgram(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	// Its requirements are ours, so that nothing has to be looked up.
	_, requires, _ := strings.Cut(string(mod), "\nrequire")
	requires, _, _ = strings.Cut(requires, "\ntool")
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.sum": string(sum),
		"go.mod": "module example.com/outside\n\ngo 1.26\n\nrequire github.com/sandbox-agent/sandbox-agent v0.0.0\n\nreplace github.com/sandbox-agent/sandbox-agent => " + root + "\n\nrequire" + requires,
		"main.go": `package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

func main() {
	ctx := context.Background()
	m, err := sandbox.NewManager(sandbox.Options{})
	if err != nil {
		log.Fatal(err)
	}
	part, kind, image := os.Args[1], os.Args[2], os.Args[3]
	for i := range 3 {
		spec := sandbox.Spec{
			Name: fmt.Sprintf(part+"-%d", i), Runtime: sandbox.Runtime(kind), Image: image,
			Lifetime: sandbox.LifetimeEphemeral, OwnerTimeout: 4 * time.Second,
		}
		for again := range 2 {
			sb, err := m.Create(ctx, spec)
			if err != nil {
				log.Fatal(err)
			}
			r, err := sb.Run(ctx, sandbox.Command{
				Argv: []string{"sh", "-c", "ls $HOME/gone; sleep 900 >/dev/null 2>&1 & touch $HOME/gone; echo $((i + 1))"},
				Env:  []string{fmt.Sprintf("i=%d", i)}, Timeout: time.Minute,
			})
			if err != nil || r.ExitCode != 0 || string(r.Stdout) != fmt.Sprintln(i+1) {
				log.Fatalf("%q %+v %v", r.Stdout, r, err)
			}
			if again > 0 || i > 0 {
				break
			}
			// Another handle removes it: the next one of that name has none of its files.
			other, err := m.Get(ctx, spec.Name)
			if err != nil {
				log.Fatal(err)
			}
			if err := other.Remove(ctx, sandbox.RemoveOptions{}); err != nil {
				log.Fatal(err)
			}
			if err := sb.Remove(ctx, sandbox.RemoveOptions{}); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
				log.Fatal(err)
			}
		}
	}
	time.Sleep(6 * time.Second) // longer than the owner timeout: keep-alive signals keep them
	fmt.Println("ready")
	select {}
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "program")
	if err := proc.Run(t.Context(), proc.Spec{Argv: []string{"go", "build", "-mod=mod", "-o", program, "."}, Dir: dir, Env: append(os.Environ(), "GOFLAGS="), Stdout: os.Stderr, Stderr: os.Stderr}); err != nil {
		t.Fatal(err)
	}
	for _, k := range []sandboxKind{{}, rootsJail} {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			testProgram(t, k.user(t), program)
		})
	}
}

func testProgram(t *testing.T, u *user, program string) {
	t.Helper()
	part := fmt.Sprintf("program-%s-%d", u.kind.spec()[0], os.Getpid())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, kill := context.WithCancel(t.Context())
	p, err := proc.Start(ctx, proc.Spec{Argv: slices.Concat([]string{program, part}, u.kind.spec()), Env: append(os.Environ(), "SANDBOX_AGENT_STATE_DIR="+u.state), Stdout: w, Stderr: os.Stderr})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, len("ready\n"))
	if _, err := r.Read(ready); err != nil {
		t.Fatalf("the program ended: %v", err)
	}
	if n := len(u.sandboxesOf(part)); n != 3 {
		t.Errorf("%d sandboxes of a program that lives", n)
	}
	// Somebody else's command in it leaves it to its program.
	if c := u.run("", "exec", part+"-1", "--", "true"); c.code != 0 || len(u.sandboxesOf(part)) != 3 {
		t.Errorf("a command in a program's sandbox: exit code %d, %v", c.code, u.sandboxesOf(part))
	}
	kill() // SIGKILL: there is no grace
	_ = p.Wait()
	for until := time.Now().Add(90 * time.Second); len(u.sandboxesOf(part)) > 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("left: %v", u.sandboxesOf(part))
		}
	}
}
