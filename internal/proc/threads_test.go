package proc

import (
	"os"
	"testing"
)

// It does not run beside other tests: those of places end threads.
func TestPrestartThreads(t *testing.T) {
	const n = 40
	PrestartThreads(n)
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < n {
		t.Errorf("%d threads are there, want at least %d", len(list), n)
	}
}
