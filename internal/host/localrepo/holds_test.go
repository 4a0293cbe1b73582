package localrepo_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
)

// TestHolds: a repository has a commit when its content lies there, and not when a name or another repository says so.
func TestHolds(t *testing.T) {
	t.Parallel()
	const absent = "1111111111111111111111111111111111111111"
	repo, dir := repository(t), t.TempDir()
	tip := strings.TrimSpace(must(t, repo, "rev-parse", "HEAD"))
	tree := strings.TrimSpace(must(t, repo, "rev-parse", "HEAD^{tree}"))
	must(t, repo, "tag", "-a", "-m", "x", "v1")
	tag := strings.TrimSpace(must(t, repo, "rev-parse", "v1"))
	object := func(repo, id string) string { return filepath.Join(repo, ".git", "objects", id[:2], id[2:]) }

	// An archive of somebody who knows the remote's ids and has nothing of what they name.
	forged := repository(t)
	commit(t, forged, "theirs", []byte("x"))
	theirs := strings.TrimSpace(must(t, forged, "rev-parse", "HEAD"))
	content, err := os.ReadFile(object(forged, theirs))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(object(forged, absent)), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, object(forged, absent), content)
	must(t, forged, "update-ref", "--no-deref", "refs/heads/named", theirs)
	must(t, forged, "update-ref", "refs/replace/"+strings.Repeat("2", 40), theirs)
	if got := strings.TrimSpace(must(t, forged, "cat-file", "-t", absent)); got != "commit" {
		t.Fatalf("git takes it for no commit, but %s: nothing is tested", got)
	}

	shared := filepath.Join(dir, "shared")
	must(t, dir, "clone", "-q", "--shared", repo, shared)
	lazy := filepath.Join(dir, "lazy")
	must(t, repo, "config", "uploadpack.allowFilter", "true")
	must(t, dir, "init", "-q", lazy)
	for _, kv := range [][2]string{{"core.repositoryFormatVersion", "1"}, {"extensions.partialClone", "origin"}, {"remote.origin.url", "file://" + repo}, {"remote.origin.promisor", "true"}, {"protocol.file.allow", "always"}} {
		must(t, lazy, "config", kv[0], kv[1])
	}

	for _, c := range []struct {
		name, repo string
		ids        []string
		want       bool
	}{
		{"its own", repo, []string{absent, tip}, true},
		{"a tag", repo, []string{tag}, true},
		{"a tree, which may be an empty one", repo, []string{tree}, false},
		{"not there", repo, []string{absent}, false},
		{"no ids", repo, nil, false},
		{"a name", repo, []string{"HEAD", "main"}, false},
		{"another under its name", forged, []string{absent}, false},
		{"one in its place", forged, []string{strings.Repeat("2", 40)}, false},
		{"borrowed", shared, []string{tip}, false},
		{"fetched when it is asked for", lazy, []string{tip}, false},
		{"no repository", dir, []string{tip}, false},
	} {
		if got := localrepo.HasAnyObject(t.Context(), c.repo, c.ids); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
