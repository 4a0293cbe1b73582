package supervise

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "reap" {
		os.Exit(Main(context.Background()))
	}
	os.Exit(m.Run())
}

func start(t *testing.T, script string, out *os.File) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	if out == nil {
		out = null
	}
	c, err := Start(t.Context(), self, []string{"reap"}, Spec{Argv: []string{"sh", "-c", script}, Dir: t.TempDir(), Env: os.Environ()}, null, out, out)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestExit(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]Exit{
		"true":        {},
		"exit 7":      {Code: 7},
		"kill -9 $$":  {Code: 137, Signal: 9},
		"kill -15 $$": {Code: 143, Signal: 15},
	} {
		if got, err := start(t, script, nil).Wait(); got != want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", script, got, err, want)
		}
	}
}

// The kernel takes a command before its supervisor.
func TestOOMScore(t *testing.T) {
	t.Parallel()
	// A command's first moment is before its start has returned.
	if got, err := start(t, "i=0; until [ $(cat /proc/self/oom_score_adj) = 500 ]; do sleep 0.1; i=$((i + 1)); [ $i -lt 100 ] || exit 1; done", nil).Wait(); got.Code != 0 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "no-program")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		argv0, dir string
		want       int
	}{{"no-such-program", "/", notFound}, {"/no/such/program", "/", notFound}, {file, "/", cannotRun}} {
		c, err := Start(t.Context(), self, []string{"reap"}, Spec{Argv: []string{row.argv0}, Dir: row.dir, Env: os.Environ()}, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Wait(); got.Code != row.want || got.Error == "" || err != nil {
			t.Errorf("%s: %+v, %v, want %d", row.argv0, got, err, row.want)
		}
	}
}

// escapes start a process each that leaves its group, session, parent or environment.
const escapes = `
setsid sleep MARK &
env -i setsid -f sleep MARK
(sleep MARK &)
(setsid sh -c 'sleep MARK & sleep MARK' &)
sh -c 'trap "" TERM HUP INT; sleep MARK; sleep MARK' &
echo ready
sleep MARK`

// However they hide, nothing that a command started is left at its end by force.
func TestEnd(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]time.Duration{"at once": 0, "with a grace": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := strconv.Itoa(100000 + os.Getpid()%100000 + int(grace))
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			c := start(t, strings.ReplaceAll(escapes, "MARK", mark), w)
			_ = w.Close()
			line := make([]byte, len("ready\n"))
			if _, err := io.ReadFull(r, line); err != nil {
				t.Fatal(err)
			}
			for running(t, mark) < 7 { // go test's own deadline ends it
				time.Sleep(time.Millisecond)
			}
			c.End(syscall.SIGTERM, grace)
			if got, err := c.Wait(); got.Code <= 128 || err != nil {
				t.Errorf("%+v, %v", got, err)
			}
			if n := running(t, mark); n != 0 {
				t.Errorf("%d processes are left", n)
			}
		})
	}
}

// A supervisor whose starter dies ends its command: here the socket is all that it sees of that.
func TestStarterGone(t *testing.T) {
	t.Parallel()
	mark := strconv.Itoa(300000 + os.Getpid()%100000)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := start(t, strings.ReplaceAll(escapes, "MARK", mark), w)
	_ = w.Close()
	if _, err := io.ReadFull(r, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	_ = c.conn.CloseWrite()
	<-c.done
	if n := running(t, mark); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// What a command leaves at its own end stays: a server that was started so is the sandbox's.
func TestLeftAtTheEnd(t *testing.T) {
	t.Parallel()
	mark := strconv.Itoa(500000 + os.Getpid()%100000)
	c := start(t, "setsid sleep "+mark+" & exit 3", nil)
	if got, err := c.Wait(); got.Code != 3 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	left := pids(t, mark)
	for ; len(left) == 0; left = pids(t, mark) { // it may not have become sleep yet; go test's own deadline ends the wait
		time.Sleep(time.Millisecond)
	}
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func TestSignal(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := start(t, `trap 'exit 9' USR1; echo ready; while :; do sleep 0.01; done`, w)
	_ = w.Close()
	if _, err := io.ReadFull(r, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	c.Signal(syscall.SIGUSR1)
	if got, err := c.Wait(); got.Code != 9 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// A command that kills its supervisor frees nothing: processes without a supervisor are killed. Processes
// that another command has left stay. This test is not parallel: the children of others would count as
// unsupervised.
func TestSupervisorKilled(t *testing.T) {
	adopt(t)
	mark := strconv.Itoa(700000 + os.Getpid()%100000)
	stays := strconv.Itoa(800000 + os.Getpid()%100000)
	// A server that forks and whose first process ends, as daemons do.
	if got, err := start(t, "setsid sh -c 'sh -c \"sleep "+stays+" & exit\" & exit' >/dev/null 2>&1 & exit 0", nil).Wait(); got.Code != 0 || err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	defer func() {
		for _, pid := range pids(t, stays) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	for current.Load().known() == 0 { // go test's own deadline ends the wait
		time.Sleep(time.Millisecond)
	}
	alive := start(t, "sleep "+mark+"1", nil) // of a supervisor that lives
	for running(t, mark+"1") == 0 {
		time.Sleep(time.Millisecond)
	}
	c := start(t, strings.ReplaceAll(strings.TrimSuffix(escapes, "\nsleep MARK"), "MARK", mark+"2")+`
sleep 0.2
kill -9 $PPID
sleep `+mark+"2", nil)
	if _, err := c.Wait(); err == nil {
		t.Error("a supervisor that was killed is no error")
	}
	if n := running(t, mark+"2"); n != 0 {
		t.Errorf("%d processes are left of a command that killed its supervisor", n)
	}
	if n := running(t, mark+"1"); n != 1 {
		t.Errorf("%d processes of another command", n)
	}
	if n := running(t, stays); n != 1 {
		t.Errorf("%d processes that another command had left behind", n)
	}
	alive.End(0, 0)
	if _, err := alive.Wait(); err != nil {
		t.Error(err)
	}
}

// A command that stops its supervisor is ended all the same. It is no parallel test: see above.
func TestSupervisorStopped(t *testing.T) {
	adopt(t)
	for name, stop := range map[string]string{
		"once":            "kill -STOP $PPID",
		"again and again": `setsid sh -c "while :; do kill -STOP $PPID; done" &`,
	} {
		mark := strconv.Itoa(900000 + os.Getpid()%100000)
		c := start(t, stop+"\nsleep "+mark, nil)
		for running(t, mark) == 0 || !stopped(c.p.PID()) { // go test's own deadline ends the wait
			time.Sleep(time.Millisecond)
		}
		c.End(syscall.SIGTERM, 100*time.Millisecond)
		_, _ = c.Wait() // an error where the supervisor had to be killed
		if n := running(t, mark); n != 0 {
			t.Errorf("%s: %d processes are left", name, n)
		}
	}
}

func adopt(t *testing.T) {
	t.Helper()
	if current.Load() == nil {
		if err := Adopt(); err != nil {
			t.Fatal(err)
		}
	}
}

// stopped reports whether a signal has stopped a process.
func stopped(pid int) bool {
	st, err := proc.ReadStat(pid)
	return err == nil && st.State == "T"
}

// known is how much was left behind.
func (f *adopter) known() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.orphans)
}

func running(t *testing.T, mark string) int { t.Helper(); return len(pids(t, mark)) }

// pids are the processes with the mark in their command line.
func pids(t *testing.T, mark string) (found []int) {
	t.Helper()
	for _, p := range proc.Processes() {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline")
		if err == nil && p.Alive && bytes.HasPrefix(line, []byte("sleep\x00"+mark)) {
			found = append(found, p.PID)
		}
	}
	return found
}

// What a supervisor says when it crashes is not the command's output.
func TestCrashIsSilent(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, err := Start(t.Context(), "/bin/sh", []string{"-c", "read spec <&3; echo trace >&2; exit 2"}, Spec{Argv: []string{"true"}}, nil, w, w)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(); err == nil {
		t.Error("it has ended well")
	}
	if b, err := io.ReadAll(r); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
}
