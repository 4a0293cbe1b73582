//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
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

// nowhere checks that no secret is on the screen or in the run's folder.
func nowhere(t *testing.T, u *user, c call, secrets ...string) {
	t.Helper()
	dir := filepath.Dir(resultPath(t, u, c.task(t)))
	for _, secret := range secrets {
		if strings.Contains(c.stdout+c.stderr, secret) {
			t.Errorf("the CLI printed %s", secret)
		}
		err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			if strings.Contains(string(b), secret) {
				t.Errorf("%s holds a secret", p)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
