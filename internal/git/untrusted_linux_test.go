package git_test

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// The processes that git starts have the limit as well.
func TestUntrustedMemory(t *testing.T) {
	t.Parallel()
	for untrusted, want := range map[bool]bool{true: true, false: false} {
		out, err := git.Repo{Dir: t.TempDir(), Untrusted: untrusted}.Output(t.Context(), "-c", "alias.limit=!ulimit -d", "limit")
		if got := strings.TrimSpace(string(out)) == "1048576"; got != want || err != nil {
			t.Errorf("untrusted %v: %s, %v", untrusted, out, err)
		}
	}
}
