package initd

import (
	"bufio"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The test binary plays all roles: init in a process of its own, because a
// wait for any child must not run beside the test's own children, and boot and rescue as init's children.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[0] == "entrypoint":
		os.Exit(role(os.Args[1]))
	case os.Getenv("INITD_TEST") == "init":
		os.Exit(playInit())
	}
	os.Exit(m.Run())
}

func playInit() int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, LongStop)
	i := Init{
		Order: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Log: slog.New(slog.DiscardHandler),
		Self: "/proc/self/exe", Signals: signals,
		Done: func() bool {
			_, err := os.Stat(os.Getenv("INITD_RESULT"))
			return err == nil
		},
		Longest: func(order []byte) time.Duration {
			if strings.HasPrefix(string(order), "stuck") {
				return 100 * time.Millisecond
			}
			return time.Hour
		},
	}
	return i.Run()
}

// role is what a scripted boot does: the order is the script.
func role(name string) int {
	in := bufio.NewReader(os.Stdin)
	if head, _ := in.Peek(len(workorder.StandbyMark)); string(head) == workorder.StandbyMark {
		_, _ = in.ReadBytes('\n')
		_, _ = os.Stdout.WriteString(name + ": stands by\n")
	}
	order, err := io.ReadAll(in)
	if err != nil {
		return 99
	}
	if name == "rescue" && strings.HasSuffix(string(order), "late rescue\n") {
		return late()
	}
	say := func(s string) { _, _ = os.Stdout.WriteString(name + ": " + s + "\n") }
	done := func() { _ = os.WriteFile(os.Getenv("INITD_RESULT"), nil, 0o600) }
	if name == "rescue" && strings.HasSuffix(string(order), "slow rescue\n") {
		// It pushes to a remote that hangs, until it is stopped.
		signals := make(chan os.Signal, 4)
		signal.Notify(signals, syscall.SIGTERM, LongStop)
		Listen()
		say("pushing")
		for got := map[os.Signal]bool{}; len(got) < 2; { // in any order, and more than once
			s := <-signals
			got[s] = true
			say("got " + s.String())
		}
		say("bundled")
		return 5
	}
	if name == "rescue" {
		say(os.Getenv("SANDBOX_AGENT_RESCUE_REASON") + " order=" + strconv.Itoa(len(order)))
		return 5
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	Listen()
	script, _, _ := strings.Cut(string(order), "\n")
	switch verb, arg, _ := strings.Cut(script, " "); verb {
	case "exit":
		done()
		code, err := strconv.Atoi(arg)
		if err != nil {
			return 99
		}
		return code
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "orphans":
		// Children that outlive boot, and boot's own exit codes beside them.
		for i := range 100 {
			p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "(sleep 0.05 &) ; exit 3"}, &os.ProcAttr{})
			if err != nil {
				return 99
			}
			st, err := p.Wait()
			if err != nil || st.ExitCode() != 3 {
				say("lost exit code of child " + strconv.Itoa(i))
				return 98
			}
		}
		done()
		return 0
	case "wait":
		say("ready")
		<-signals
		say("got the signal")
		done()
		return 11
	case "slow":
		say("ready")
		<-signals
		time.Sleep(workorder.AgentGrace + workorder.LandGrace) // what is left is for a machine that stalls
		done()
		time.Sleep(workorder.EngineGrace)
		return 11
	case "hang", "stuck":
		signal.Ignore(syscall.SIGTERM)
		say("ready")
		time.Sleep(time.Hour)
	}
	return 99
}

// late is a rescue that is slow to listen: it waits until a stop has been asked for.
func late() int {
	_, _ = os.Stdout.WriteString("late: forked\n")
	for {
		if _, err := os.Stat(os.Getenv("INITD_RESULT") + ".asked"); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, LongStop)
	Listen()
	for got := map[os.Signal]bool{}; len(got) < 2; {
		got[<-signals] = true
	}
	return 5
}

type started struct {
	*proc.Process
	out    *proc.Tail
	result string
}

func start(t *testing.T, order string) started {
	t.Helper()
	return startWith(t, strings.NewReader(order))
}

func startWith(t *testing.T, stdin io.Reader) started {
	t.Helper()
	tail := proc.NewTail(64 << 10)
	result := filepath.Join(t.TempDir(), "result.json")
	p, err := proc.Start(t.Context(), proc.Spec{
		Argv: []string{"/proc/self/exe"}, Stdin: stdin, Stdout: tail, Stderr: os.Stderr,
		Env: append(os.Environ(), "INITD_TEST=init", "INITD_RESULT="+result),
	})
	if err != nil {
		t.Fatal(err)
	}
	return started{p, tail, result}
}

func (s started) waitFor(t *testing.T, text string) {
	t.Helper()
	for range 1000 {
		if strings.Contains(s.out.String(), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no %q in %q", text, s.out.String())
}

// rescued returns the reason that rescue was given along with the order; empty if it did not run so.
func (s started) rescued(order string) string {
	for line := range strings.Lines(s.out.String()) {
		said, whole := strings.CutSuffix(strings.TrimSpace(line), " order="+strconv.Itoa(len(order)))
		if reason, ok := strings.CutPrefix(said, "rescue: "); whole && ok {
			return reason
		}
	}
	return ""
}

func TestBootsExitCodeIsTheContainers(t *testing.T) {
	t.Parallel()
	for _, code := range []int{0, 10, 13} {
		p := start(t, "exit "+strconv.Itoa(code)+"\n")
		if got := proc.ExitCode(p.Wait()); got != code {
			t.Errorf("exit code %d, want %d: %s", got, code, p.out)
		}
	}
}

func TestNoExitCodeIsLost(t *testing.T) {
	t.Parallel()
	p := start(t, "orphans\n")
	if got := proc.ExitCode(p.Wait()); got != 0 {
		t.Errorf("exit code %d: %s", got, p.out)
	}
}

func TestDeadBootIsRescued(t *testing.T) {
	t.Parallel()
	p := start(t, "die\n")
	if got := proc.ExitCode(p.Wait()); got != 5 {
		t.Errorf("exit code %d, want rescue's", got)
	}
	if reason := p.rescued("die\n"); !strings.Contains(reason, "137") {
		t.Errorf("rescue received %q: %s", reason, p.out)
	}
}

// A stop during rescue reaches it, with what was announced before, and shortens it.
func TestStopDuringRescue(t *testing.T) {
	t.Parallel()
	p := start(t, "die\nslow rescue\n")
	p.waitFor(t, "rescue: pushing")
	for _, sig := range []syscall.Signal{LongStop, syscall.SIGTERM} {
		if err := syscall.Kill(p.PID(), sig); err != nil {
			t.Fatal(err)
		}
	}
	if got := proc.ExitCode(p.Wait()); got != 5 {
		t.Errorf("exit code %d: %s", got, p.out)
	}
	for _, want := range []string{"got " + LongStop.String(), "got " + syscall.SIGTERM.String(), "bundled"} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("no %q in %q", want, p.out)
		}
	}
}

// A stop that comes before rescue has handlers waits for them: by default it would end rescue.
func TestStopBeforeRescueListens(t *testing.T) {
	t.Parallel()
	p := start(t, "die\nlate rescue\n")
	p.waitFor(t, "late: forked")
	for _, sig := range []syscall.Signal{LongStop, syscall.SIGTERM} {
		if err := syscall.Kill(p.PID(), sig); err != nil {
			t.Fatal(err)
		}
	}
	// The signals are taken when none of them is pending any more.
	p.taken(t)
	if err := os.WriteFile(p.result+".asked", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := proc.ExitCode(p.Wait()); got != 5 {
		t.Errorf("exit code %d: %s", got, p.out)
	}
}

// taken waits until init's signals reached its handlers, and a moment in which it passes them on.
func (s started) taken(t *testing.T) {
	t.Helper()
	for range 1000 {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID()) + "/status")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "ShdPnd:\t0000000000000000") {
			time.Sleep(50 * time.Millisecond) // without it the test would see less, and never fail
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("a signal is pending still")
}

func TestNoOrder(t *testing.T) {
	t.Parallel()
	p := start(t, "")
	if got := proc.ExitCode(p.Wait()); got != 5 || !strings.Contains(p.rescued(""), "`sandbox-agent create`") {
		t.Errorf("exit code %d: %s", got, p.out)
	}
}

func TestSignalReachesBoot(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := start(t, "wait\n")
		p.waitFor(t, "ready")
		// To init alone: it has to pass the signal on to boot, which is in a group of its own.
		if err := syscall.Kill(p.PID(), sig); err != nil {
			t.Fatal(err)
		}
		if got := proc.ExitCode(p.Wait()); got != 11 || !strings.Contains(p.out.String(), "got the signal") {
			t.Errorf("%s: exit code %d: %s", sig, got, p.out)
		}
	}
}

// A landing that needs all of its time is not cut short.
func TestSlowLandingIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := start(t, "slow\n")
	p.waitFor(t, "ready")
	if err := syscall.Kill(p.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := proc.ExitCode(p.Wait()); got != 11 {
		t.Errorf("exit code %d: %s", got, p.out)
	}
}

// A boot that ignores the stop is killed in time for rescue to land.
func TestHangingBootIsKilledAndRescued(t *testing.T) {
	t.Parallel()
	p := start(t, "hang\n")
	p.waitFor(t, "ready")
	p.Signal(syscall.SIGTERM)
	if got := proc.ExitCode(p.Wait()); got != 5 || !strings.Contains(p.rescued("hang\n"), "137") {
		t.Errorf("exit code %d: %s", got, p.out)
	}
}

// A boot that cannot end itself is ended when its time is over, even without a stop request.
func TestStuckBootIsRescued(t *testing.T) {
	t.Parallel()
	p := start(t, "stuck\n")
	if got := proc.ExitCode(p.Wait()); got != 5 || !strings.Contains(p.rescued("stuck\n"), "137") {
		t.Errorf("exit code %d: %s", got, p.out)
	}
}

const standbyFrame = workorder.StandbyMark + "{}}\n"

// A standby boots with its own document. The order comes later, while the input stays open, and counts from then on.
func TestStandbyGetsItsOrderLater(t *testing.T) {
	t.Parallel()
	for order, want := range map[string]int{"exit 7\n": 7, "die\n": 5, "stuck\n": 5} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		p := startWith(t, r)
		for i, text := range []string{standbyFrame, order} {
			if _, err := w.WriteString(text); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				p.waitFor(t, "boot: stands by")
			}
		}
		if got := proc.ExitCode(p.Wait()); got != want {
			t.Errorf("%q: exit code %d: %s", order, got, p.out)
		}
		if (p.rescued(order) != "") != (want == 5) {
			t.Errorf("%q: %s", order, p.out)
		}
	}
}

// A standby without an order has nothing to rescue.
func TestStandbyWithoutAnOrderIsNotRescued(t *testing.T) {
	t.Parallel()
	p := start(t, standbyFrame)
	if got := proc.ExitCode(p.Wait()); got != 99 || strings.Contains(p.out.String(), "rescue") {
		t.Errorf("exit code %d: %s", got, p.out)
	}
}
