package setupcache

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// commit makes a commit of files in a repository.
func commit(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, dir, "add", "-A")
	gittest.Git(t, dir, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "x")
	return "HEAD"
}

// A key is of what setup depends on: files that name dependencies, wherever they are, and the box's description.
func TestLook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gittest.Git(t, dir, "init", "-q", "-b", "main", "--template=")
	repo := git.Repo{Dir: filepath.Join(dir, ".git"), Bare: true}
	spec := workorder.BoxSpec{Setup: []string{"npm ci"}}
	look := func(spec workorder.BoxSpec) Commit {
		t.Helper()
		c, err := Look(t.Context(), repo, "HEAD", &spec)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	commit(t, dir, map[string]string{"package.json": `{"scripts": {"test": "x"}}`, "src/a.js": "1", "api/go.mod": "module a\n"})
	first := look(spec)
	if first.Scripts {
		t.Error("a script that installing does not run counts")
	}
	for _, c := range []struct {
		file, content string
		same, scripts bool
	}{
		{"src/a.js", "2", true, false},
		{"package-lock.json", "{}", false, false},
		{"api/go.mod", "module b\n", false, false},
		{"web/requirements-dev.txt", "x\n", false, false},
		{"patches/x.patch", "x\n", false, false},
		{"web/package.json", `{"scripts": {"prepare": "tsc"}}`, false, true},
		{"web/package.json", "\xef\xbb\xbf{}", false, false},
		{"web/package.json", "{", false, true},
	} {
		before := look(spec)
		commit(t, dir, map[string]string{c.file: c.content})
		after := look(spec)
		if same := after.Key == before.Key; same != c.same || after.Tree == before.Tree || after.Scripts != c.scripts {
			t.Errorf("%s: same %v, scripts %v", c.file, same, after.Scripts)
		}
	}
	gittest.Git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+gittest.Git(t, dir, "rev-parse", "HEAD")+",sub/package.json")
	gittest.Git(t, dir, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "a submodule")
	now := look(spec)
	for name, other := range map[string]workorder.BoxSpec{
		"setup":    {Setup: []string{"npm ci", "true"}},
		"packages": {Setup: spec.Setup, Packages: []string{"jq"}},
		"tools":    {Setup: spec.Setup, Tools: map[string]string{"node": "22"}},
		"env":      {Setup: spec.Setup, Env: map[string]string{"A": "1"}},
		"services": {Setup: spec.Setup, Services: []workorder.Service{{Name: "db", Image: "x"}}},
	} {
		if look(other).Key == now.Key {
			t.Errorf("%s does not count", name)
		}
	}
}

// Only commands whose outcome the key decides are left out.
func TestInstalls(t *testing.T) {
	t.Parallel()
	for want, commands := range map[bool][]string{
		true: {
			"npm ci",
			"npm ci --no-audit --ignore-scripts",
			"cd web && npm  ci",
			"pnpm install --frozen-lockfile",
			"go mod download",
			"python3 -m venv .venv",
			".venv/bin/pip install --quiet -r requirements.txt",
			`VIRTUAL_ENV=.venv PATH=".venv/bin:$PATH" poetry install --no-interaction`,
			"bundle install --quiet",
			// As they are found in a repository without a project file.
			"python3 -m venv $HOME/.venv",
			"$HOME/.venv/bin/pip install --quiet -r requirements.txt",
			`VIRTUAL_ENV=$HOME/.venv PATH="$HOME/.venv/bin:$PATH" poetry install --no-interaction --all-extras`,
			"UV_PROJECT_ENVIRONMENT=$HOME/.venv uv sync --frozen --all-extras --group test",
			"composer install --no-interaction --prefer-dist --no-progress",
		},
		false: {
			"npm ci && npm run build",
			"npm ci; rm -rf node_modules",
			"npm ci || true",
			"npm ci $(./x)",
			"cd .. && npm ci > /tmp/x",
			"npm install left-pad",
			"pip install -r ../../x",
			"pip install -e .",
			"python3 -m venv $OTHER/.venv",
			"go mod download && go generate",
			"FOO=`x` npm ci",
			"./setup.sh",
			"",
		},
	} {
		for _, command := range commands {
			if got := (Commit{}).installsOnly(command); got != want {
				t.Errorf("%q: %v", command, got)
			}
		}
	}
	scripts := Commit{Scripts: true}
	if scripts.installsOnly("npm ci") || scripts.installsOnly("cd web && yarn install") || !scripts.installsOnly("go mod download") {
		t.Error("a manifest's scripts do not count")
	}
}
