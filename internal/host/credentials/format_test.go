package credentials

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A remote that a box cannot work with is refused before there is one.
func TestRemoteOfSHA256(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, "tok")
	work := t.TempDir()
	gittest.Git(t, work, "init", "-q", "-b", "main", "--object-format=sha256")
	gittest.Git(t, work, "commit", "-q", "--allow-empty", "-m", "one")
	gittest.Git(t, work, "clone", "-q", "--bare", work, filepath.Join(srv.Root, "r.git"))
	cred := &workorder.GitCredential{Token: "tok"}
	_, err := New(func(string) string { return "" }).Check(t.Context(), srv.URL+"/r.git", "main", "", cred)
	if exiterr.Code(err) != workorder.ExitGit || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("exit code %d: %v", exiterr.Code(err), err)
	}
}
