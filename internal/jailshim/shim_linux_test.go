package jailshim

import (
	"os"
	"testing"
	"time"
)

// A shim whose sandbox's directory was removed ends, and any other does not.
func TestGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	done := make(chan struct{})
	defer close(done)
	c := gone(dir, time.Millisecond, done)
	select {
	case <-c:
		t.Fatal("the folder is there")
	case <-time.After(50 * time.Millisecond):
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}
