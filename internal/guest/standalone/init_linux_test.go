package standalone

import (
	"os"
	"path/filepath"
	"testing"
)

// A server that something in the sandbox has stopped goes on. It is no parallel test: Init buries all children of its process.
func TestInitWakes(t *testing.T) {
	server := filepath.Join(t.TempDir(), "server")
	if err := os.WriteFile(server, []byte("#!/bin/sh\nkill -STOP $$\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, err := Init(server, nil); code != 7 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}
