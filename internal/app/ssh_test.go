package app

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestHostKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := (&Env{Getenv: func(name string) string { return map[string]string{"SANDBOX_AGENT_STATE_DIR": dir}[name] }}).Sandboxes()
	key, err := b.HostKey()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, hostKey)
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if again, err := b.HostKey(); err != nil || !bytes.Equal(again.PublicKey().Marshal(), key.PublicKey().Marshal()) {
		t.Errorf("another key, %v", err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := b.HostKey(); err == nil {
		t.Error("others can read the key")
	}
}
