package image

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
)

// TestLock checks what the build step relies on: a digest for every tarball,
// both architectures, one version for both, and no host of a registry.
func TestLock(t *testing.T) {
	b, err := fs.ReadFile(files, "packages/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct {
			Version, Integrity, Resolved string
			InBundle                     bool
		}
	}
	if err := json.Unmarshal(b, &lock); err != nil {
		t.Fatal(err)
	}
	for name, p := range lock.Packages {
		if name == "" {
			continue
		}
		if p.Resolved != "" {
			t.Errorf("%s names a host: lock with --omit-lockfile-registry-resolved", name)
		}
		if !p.InBundle && !strings.HasPrefix(p.Integrity, "sha512-") {
			t.Errorf("%s has no sha512", name)
		}
	}
	for _, name := range []string{
		"node-linux-", "@anthropic-ai/claude-code-linux-", "@openai/codex-linux-", "opencode-linux-",
		"@supabase/cli-linux-",
	} {
		// Codex has its platform in the version as well.
		x := strings.TrimSuffix(lock.Packages["node_modules/"+name+"x64"].Version, "-linux-x64")
		arm := strings.TrimSuffix(lock.Packages["node_modules/"+name+"arm64"].Version, "-linux-arm64")
		if x == "" || x != arm {
			t.Errorf("%s: version %q on x64, %q on arm64", name, x, arm)
		}
	}
}
