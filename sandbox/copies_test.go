package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A directory of a killed program's copy goes with the next one, and one in use stays.
func TestCopies(t *testing.T) { // not parallel: it sets TMPDIR
	t.Setenv("TMPDIR", t.TempDir())
	used, remove, err := copyDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(os.TempDir(), copyPrefix+"1")
	if err := os.MkdirAll(filepath.Join(killed, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	other, removeOther, err := copyDir(os.TempDir())
	if err != nil || other == used {
		t.Fatal(other, err)
	}
	if _, err := os.Stat(used); err != nil {
		t.Error(err)
	}
	remove()
	removeOther()
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A clone takes no room in /tmp, which is memory in a jail.
func TestCloneWithoutTmp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := `set -e
git init -q -b main "$1/src"; cd "$1/src"; echo x >f; git add f; git -c user.name=n -c user.email=e commit -qm c
 git bundle create -q ../bundle main; mkdir "$1/to" "$1/to/.sandbox-agent-clone"
export TMPDIR="$1/missing"; sh -c "$2" sh "$1/to" main n e <"$1/bundle"; ls -A "$1/to"`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", dir, cloneScript)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	b, err := cmd.CombinedOutput()
	if got := strings.Fields(string(b)); err != nil || strings.Join(got, " ") != ".git f" {
		t.Errorf("%q, %v", b, err)
	}
}
