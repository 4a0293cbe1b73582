//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// resultPath is where the program says a task's result lies.
func resultPath(t *testing.T, u *user, id string) string {
	t.Helper()
	c := u.run("", "result", id, "--path")
	if c.code != 0 {
		t.Fatalf("result --path: exit code %d", c.code)
	}
	p := strings.TrimSpace(c.stdout)
	if filepath.Base(p) != workorder.ResultFile {
		p = filepath.Join(p, workorder.ResultFile)
	}
	return p
}
