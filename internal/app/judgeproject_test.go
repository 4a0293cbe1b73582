package app

import (
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

func TestProblemsOfFile(t *testing.T) {
	t.Parallel()
	w := &projectWriter{repo: &localrepo.Repo{Path: filepath.Join(t.TempDir(), "repo")}}
	const good = `name: x
repo: .
tools: {node: 22} # .nvmrc:1
services:
  # compose.yaml:3
  db: {image: postgres}
env:
  A: b # Makefile:3
lifecycle:
  setup:
    - npm ci # package-lock.json
    # ci.yml:7
    - |
      npm run
      build
validate:
  test: npm test # ci.yml:9
`
	for name, row := range map[string]struct {
		file string
		want []string
	}{
		"good":       {good, nil},
		"none":       {"", []string{"file"}},
		"no yaml":    {"a: [", []string{"file"}},
		"wrong keys": {"name: x\nrepo: .\nnmae: y\nvalidate: {test: [1]}\n", []string{"file", "file"}},
		"no check":   {"name: x\nrepo: .\n", []string{"validate"}},
		"checks that test nothing": {
			"name: x\nrepo: .\nvalidate: # Makefile\n  a: \"true\" # x:1\n  b: ':' # x:1\n  c: exit 0 # x:1\n  d: cd x && echo ok # x:1\n" +
				"  e: echo a; /bin/true # x:1\n  f: echo a && make # x:1\n",
			[]string{"validate.a", "validate.b", "validate.c", "validate.d", "validate.e"},
		},
		"another repository": {
			"name: x\nrepo: https://example.org/x\nbranch: evil\nvalidate:\n  test: make # Makefile:1\n", []string{"repo", "repo"},
		},
		"a file of the user": {
			good + "secrets:\n  KEY: file://~/.ssh/id_rsa\n  OTHER: cmd://id\n", []string{"secrets.KEY", "secrets.OTHER"},
		},
		"another isolation": {good + "isolation: privileged\n", []string{"isolation"}},
		"without sources": {
			"name: x\nrepo: .\npackages: [abc]\ntools:\n  node: 22\n  go: 1.24 # go.mod:3\nlifecycle: {setup: [b]}\nvalidate:\n  test: make\n",
			[]string{"packages[0]", "tools.node", "setup[0]", "validate.test"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.Project = row.file
			var keys []string
			for _, p := range w.problemsOfFile() {
				keys = append(keys, p.Key)
			}
			if !slices.Equal(keys, row.want) {
				t.Errorf("problems %q, want %q", keys, row.want)
			}
		})
	}
}

// The draft that the agent starts from must not be refused for its form.
func TestUncommentedDraft(t *testing.T) {
	t.Parallel()
	draft := projectDraft(t, map[string]string{
		"go.mod": "module x\n\ngo 1.24\n", "x_test.go": "package x\n", ".nvmrc": "22\n", "package.json": `{"scripts": {"test": "jest"}}`,
		"compose.yaml": "services:\n  db:\n    image: postgres\n    environment: {POSTGRES_PASSWORD: x}\n",
	})
	if _, err := projects.Detected(t.TempDir(), []byte(draft)); err != nil {
		t.Fatal(err)
	}
	if keys := uncommented(draft); len(keys) > 0 {
		t.Errorf("without a source: %q in\n%s", keys, draft)
	}
}

func projectDraft(t *testing.T, files map[string]string) string {
	t.Helper()
	tree := fstest.MapFS{}
	for name, content := range files {
		tree[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return detect.Detect(tree, "x").YAML()
}
