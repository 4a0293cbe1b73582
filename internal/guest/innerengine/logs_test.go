package innerengine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/redact"
)

// The engine's programs write their logs themselves; what leaves the box is a
// copy without secrets.
func TestEngineLogsAreKeptWithoutSecrets(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	if err := KeepLogs(from, to, nil); err != nil {
		t.Errorf("an engine that never ran: %v", err)
	}
	if err := os.WriteFile(filepath.Join(from, "dockerd.log"), []byte("env value-of-the-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mask := redact.Named(map[string]string{"KEY": "value-of-the-key"})
	if err := KeepLogs(from, to, mask); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "dockerd.log")); err != nil || string(b) != "env [redacted:KEY]\n" {
		t.Errorf("%q, %v", b, err)
	}
}
