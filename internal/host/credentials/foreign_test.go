package credentials

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// TestHelperOfARepository: the credential helper is asked that the user configured, and none that the repository of the current
// folder names.
func TestHelperOfARepository(t *testing.T) {
	home, repo := t.TempDir(), t.TempDir()
	gittest.Git(t, repo, "init", "-q")
	marker := filepath.Join(home, "marker")
	for _, key := range []string{"credential.helper", "credential.https://git.example.helper", "core.askPass"} {
		gittest.Git(t, repo, "config", key, "!touch "+marker+"; echo password=theirs; echo username=them; :")
	}
	config := filepath.Join(home, ".gitconfig")
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Chdir(repo)
	f := New(func(name string) string { return map[string]string{"HOME": home}[name] })
	for own, want := range map[string]string{"": "", "[credential]\n\thelper = \"!echo username=me; echo password=mine; :\"\n": "mine"} {
		if err := os.WriteFile(config, []byte(own), 0o600); err != nil {
			t.Fatal(err)
		}
		cred, err := f.Git(t.Context(), "http://git.example/x.git")
		if err != nil || (cred != nil) != (want != "") || cred != nil && cred.Token != want {
			t.Errorf("%+v, %v, want %q", cred, err, want)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Error("the repository's helper ran")
		}
	}
}
