package resolve

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

// A repository's path begins where the user is, however it is written, with a project file in it and without one.
func TestRepositoryPaths(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	above := filepath.Join(home, "above")
	top := filepath.Join(above, "sub")
	if err := os.MkdirAll(filepath.Join(top, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, top, "init", "-q", "-b", "main")
	gittest.Git(t, top, "commit", "-q", "--allow-empty", "-m", "x")
	t.Chdir(above)
	state := t.TempDir()
	for _, file := range []string{"", "name: x\nharness: {name: command, command: 'true'}\n"} {
		if file != "" {
			if err := os.WriteFile(filepath.Join(top, projects.DefaultFile), []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, repo := range []string{top, "sub", "./sub", "sub/", "sub/in/..", "../above/sub", "~/above/sub", "file://" + top} {
			r := &Resolver{Credentials: credentials.New(func(string) string { return "key" }), StateDir: func() (string, error) { return state, nil }}
			g, err := r.Find(t.Context(), &Flags{Values: map[string]string{"repo": repo}, Sources: map[string]string{"repo": "--repo"}})
			if err != nil || g.Local.Path != top || g.Project.Detected != (file == "") || g.request().Overrides["repo"] != top {
				t.Errorf("%s, with the file %q: %v", repo, file, err)
			}
		}
	}
}
