package proc

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func sh(script string) Spec { return Spec{Argv: []string{"/bin/sh", "-c", script}} }

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -TERM $$": 143} {
		err := Run(t.Context(), sh(script))
		if got := ExitCode(err); got != want {
			t.Errorf("%q: exit code %d (%v), want %d", script, got, err, want)
		}
	}
	var ee *ExitError
	if err := Run(t.Context(), sh("kill -9 $$")); !errors.As(err, &ee) || ee.Signal != syscall.SIGKILL {
		t.Errorf("signal lost: %v", err)
	}
	if err := Run(t.Context(), Spec{Argv: []string{"/nonexistent/x"}}); err == nil || ExitCode(err) != -1 {
		t.Errorf("missing program: %v", err)
	}
}

func TestOutputKeepsStderrForTheError(t *testing.T) {
	t.Parallel()
	out, err := Output(t.Context(), sh("echo out; echo why >&2; exit 3"))
	if string(out) != "out\n" || ExitCode(err) != 3 || !strings.Contains(err.Error(), "why") {
		t.Errorf("got %q, %v", out, err)
	}
}

// A child that leaves a grandchild holding its pipe ends when it ends.
func TestHeldPipeDoesNotHang(t *testing.T) {
	t.Parallel()
	done := make(chan error, 1)
	go func() {
		_, err := Output(t.Context(), sh("sleep 300 & echo pid $!; exit 0"))
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("waits for the grandchild")
	}
}

func TestStopKillsTheGroupAfterGrace(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	s := sh(`trap "" TERM; sleep 300 & echo $!; wait; sleep 300`)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.Stdout, s.Grace = w, 50*time.Millisecond
	p, err := Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	buf := make([]byte, 32)
	n, err := r.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		t.Fatal(err)
	}
	cancel(errors.New("enough"))
	if got := ExitCode(p.Wait()); got != 137 {
		t.Errorf("exit code %d, want 137", got)
	}
	for end := time.Now().Add(time.Minute); !gone(child); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the child of the stopped process lives on")
		}
	}
}

// gone reports whether pid has ended; nobody may have reaped it yet.
func gone(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestCauseIsInTheError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, errors.New("budget of the step"))
	defer cancel()
	if err := Run(ctx, sh("sleep 60")); err == nil || !strings.Contains(err.Error(), "budget of the step") {
		t.Errorf("got %v", err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	out, err := Output(t.Context(), sh("head -c 20000000 /dev/zero"))
	if err == nil || out != nil {
		t.Errorf("got %d bytes, %v; want an error", len(out), err)
	}
}

func TestPathOfTheEnvironmentIsUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/hello", []byte("#!/bin/sh\necho hi\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := Output(t.Context(), Spec{Argv: []string{"hello"}, Env: []string{"PATH=" + dir + ":/bin:/usr/bin"}})
	if err != nil || string(out) != "hi\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := Output(t.Context(), Spec{Argv: []string{"hello"}, Env: []string{"PATH=/bin"}}); err == nil {
		t.Error("found a program that is not in the given PATH")
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	tail := NewTail(5)
	for _, s := range []string{"abc", "def", "", "g"} {
		if _, err := tail.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if got := tail.String(); got != "[…] cdefg" {
		t.Errorf("got %q", got)
	}
	whole := NewTail(5)
	_, _ = whole.Write([]byte("abcde"))
	if got := whole.String(); got != "abcde" {
		t.Errorf("got %q", got)
	}
}

func TestOwns(t *testing.T) {
	t.Parallel()
	status := "Name:\tx\nState:\tS (sleeping)\nUid:\t1000\t1000\t1000\t1000\n"
	if !owns(status, 1000) || owns(status, 0) {
		t.Error("wrong owner")
	}
	if owns(strings.Replace(status, "S (", "Z (", 1), 1000) {
		t.Error("a zombie counts")
	}
}
