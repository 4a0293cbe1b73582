package text

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestShell(t *testing.T) {
	t.Parallel()
	words := []string{"printf", `%s\n`, "", "a", "it's", `"x" $HOME \`, "~", "a=b", "*", "{a,b}", "-n", "é", "#", "!", "a\nb"}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", Shell(words...)).CombinedOutput()
	if got := strings.TrimSuffix(string(out), "\n"); err != nil || got != strings.Join(words[2:], "\n") {
		t.Errorf("%q, %v", got, err)
	}
	if got := Shell("git", "log", "main..x", "--format=%an"); got != "git log main..x --format=%an" {
		t.Error(got)
	}
	if before := slices.Clone(words); Shell(words...) == "" || !slices.Equal(words, before) {
		t.Error("the words are changed")
	}
}
