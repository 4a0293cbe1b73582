package proc_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

func TestSetCloseOnExec(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	// As a caller leaves it: Go's own files are never handed on.
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	look := func() bool {
		out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"/bin/sh", "-c", "ls -l /proc/self/fd"}, Env: os.Environ()})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(out), "pipe:["+pipeID(t, w)+"]")
	}
	if !look() {
		t.Fatal("a child does not get the file at all")
	}
	if proc.SetCloseOnExec(); look() {
		t.Error("a child still gets the caller's file")
	}
}

func pipeID(t *testing.T, f *os.File) string {
	t.Helper()
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(name, "pipe:["), "]")
}
