package rootgit

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Remotes that we cannot work with are refused by what they are, not by what we stumble over.
func TestRemotesThatAreNotSupported(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, "tok")
	srv.Create(t, "deep.git", nil)
	gittest.Git(
		t,
		filepath.Join(srv.Root, "deep.git"),
		"update-ref",
		"refs/heads/main",
		gittest.Git(t, filepath.Join(srv.Root, "deep.git"), "commit-tree", "-p", "main", "-m", "two", "main^{tree}"),
	)
	gittest.Git(
		t,
		".",
		"clone",
		"-q",
		"--bare",
		"--depth",
		"1",
		"file://"+filepath.Join(srv.Root, "deep.git"),
		filepath.Join(srv.Root, "shallow.git"),
	)
	work := t.TempDir()
	gittest.Git(t, work, "init", "-q", "-b", "main", "--object-format=sha256")
	gittest.Git(t, work, "commit", "-q", "--allow-empty", "-m", "one")
	gittest.Git(t, work, "clone", "-q", "--bare", work, filepath.Join(srv.Root, "sha256.git"))
	for name, want := range map[string]string{"deep.git": "", "shallow.git": git.ShallowText, "sha256.git": git.SHA256Text} {
		url := srv.URL + "/" + name
		p := connect(&remote.Repos{
			Order: &workorder.Order{
				TaskID:   "T-A1B2C3D4",
				Repo:     url,
				CloneURL: url,
				Branch:   "main",
			},
			Dir:       t.TempDir(),
			BeforeDir: filepath.Join(t.TempDir(), "before.git"),
			Auth:      &git.Auth{URL: url, Token: "tok"},
			Emit:      func(workorder.Event) {},
		})
		_, _, err := p.Claimer.Fetch(t.Context())
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case want != "" && (git.KindOf(err) != git.KindFormat || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: it is %q: %v", name, git.KindOf(err), err)
		}
	}
}
