//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// foundBox is the sandbox with a Claude Code that needs no model: it tells the prompt, and adds a file.
const foundBox = "sandbox-agent-e2e-found:1"

const foundClaude = `#!/bin/sh
[ "$1" = --version ] && { echo '2.1.0 (Claude Code)'; exit 0; }
cat >/tmp/prompt
grep -c 'Notes of the sandbox' /tmp/prompt >>NOTES
date >>CHANGED && git add CHANGED NOTES && git commit -q -m "Add a file" || exit 1
echo '{"type":"system","subtype":"init","session_id":"s","model":"m"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s","num_turns":1,"total_cost_usd":0,"usage":{"input_tokens":1,"output_tokens":1}}'
`

// foundBuild keeps tests from building foundBox at the same time.
var foundBuild sync.Mutex

// foundImage builds foundBox.
func foundImage(t *testing.T, u *user) {
	t.Helper()
	foundBuild.Lock()
	defer foundBuild.Unlock()
	c := u.run("", "image", "build")
	if c.code != 0 {
		t.Fatalf("image build: exit code %d", c.code)
	}
	if err := buildImage(t.Context(), foundBox, "FROM "+lastLine(c.stdout)+"\nRUN p=$(command -v claude) && rm -f $p && echo "+
		base64.StdEncoding.EncodeToString([]byte(foundClaude))+" | base64 -d >$p && chmod 755 $p\n"); err != nil {
		t.Fatal(err)
	}
}

// module downloads a module as its author published it and returns its files.
func module(t *testing.T, name string) map[string]string {
	t.Helper()
	out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"go", "mod", "download", "-json", name}, Dir: t.TempDir()})
	var got struct{ Dir, Error string }
	if jerr := json.Unmarshal(out, &got); err != nil || jerr != nil || got.Dir == "" {
		t.Fatalf("download %s: %v %s", name, err, got.Error)
	}
	return filesOf(t, got.Dir)
}

// filesOf are the files below a folder, by path.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		files[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// npmPackage downloads a package as its author published it and returns its files.
func npmPackage(t *testing.T, name string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	for _, argv := range [][]string{{"npm", "pack", "--silent", "--pack-destination", dir, name}, {"sh", "-c", "tar xzf *.tgz"}} {
		if err := proc.Run(t.Context(), proc.Spec{Argv: argv, Dir: dir, Env: os.Environ()}); err != nil {
			t.Fatalf("%s: %v", argv[0], err)
		}
	}
	return filesOf(t, filepath.Join(dir, "package"))
}

// TestNoProjectFile starts a task in repositories that nobody prepared: what they say of themselves sets the sandbox up and judges
// the work.
func TestNoProjectFile(t *testing.T) {
	t.Parallel()
	u := newUser(t, "ANTHROPIC_API_KEY=sk-ant-none")
	foundImage(t, u)
	broken := npmPackage(t, "left-pad@1.3.0")
	broken[".devcontainer/devcontainer.json"] = `{"postCreateCommand": {"a": "no-such-tool --install", "b": "npm install --no-package-lock"}}`
	type project struct {
		files    map[string]string
		checks   []string
		warnings int
		notes    string
	}
	rows := map[string]project{
		"broken": {files: broken, checks: []string{"test"}, warnings: 1, notes: "1"},
	}
	if nightly { // they take longer, and go builds everything three times
		rows["npm"] = project{files: npmPackage(t, "left-pad@1.3.0"), checks: []string{"test"}, notes: "0"}
		rows["go"] = project{files: module(t, "github.com/google/uuid@v1.6.0"), checks: []string{"test", "vet"}, notes: "0"}
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := *u
			mine.t = t
			mine.dir = mine.repo(row.files)
			c := mine.run("", "create", "--task", "x", "--image", foundBox)
			r := mine.result(c.task(t))
			if c.code != 0 || r.Status != workorder.StatusSuccess || len(r.Warnings) != row.warnings {
				t.Fatalf("exit code %d, status %s, warnings %q", c.code, r.Status, r.Warnings)
			}
			var passed []string
			for _, v := range r.Validation {
				if v.Passed {
					passed = append(passed, v.Name)
				}
			}
			if !slices.Equal(passed, row.checks) {
				t.Errorf("checks %q passed, want %q", passed, row.checks)
			}
			if r.Proof == nil || len(r.Proof.Checks) != len(row.checks) {
				t.Errorf("proof %+v", r.Proof)
			}
			if got := gittest.Git(t, mine.dir, "show", r.Branch+":NOTES"); got != row.notes {
				t.Errorf("the prompt had notes %q times, want %q", got, row.notes)
			}
			if strings.Contains(gittest.Git(t, mine.dir, "show", "--stat", r.Branch), "node_modules") {
				t.Error("dependencies were committed")
			}
		})
	}
}
