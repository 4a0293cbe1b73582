package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/presets"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// pages returns the README and each page of docs by its path in the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../../docs/*.md")
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no pages in docs: ", err)
	}
	all := map[string]string{}
	for _, path := range append(paths, "../../../README.md") {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(filepath.ToSlash(path), "../../../")] = string(b)
	}
	return all
}

// page returns one of them.
func page(t *testing.T, path string) string {
	t.Helper()
	text, ok := pages(t)[path]
	if !ok {
		t.Fatal("there is no page " + path)
	}
	return text
}

func TestReadmeProjectFileIsValid(t *testing.T) {
	t.Parallel()
	for path, text := range pages(t) {
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)
		if len(blocks) == 0 && (path == "README.md" || path == "docs/project-file.md") {
			t.Errorf("%s shows no project file", path)
		}
		for _, b := range blocks {
			if strings.HasPrefix(b[1], "presets:") { // a file of another kind
				checkPresets(t, path, b[1])
				continue
			}
			p, err := projects.Parse(path, []byte(b[1]), projects.LoadOptions{})
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if _, err := p.Order(projects.OrderInput{Task: "x"}); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// checkPresets finds every entry of a file of presets usable, except for directories that the reader has.
func checkPresets(t *testing.T, path, content string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "presets.yaml")
	write(t, file, content)
	r, err := presets.Open(presets.Options{File: file, Named: true, Getenv: func(string) string { return "/home/you" }})
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	for _, p := range r.Problems() {
		if !errors.Is(p, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, p)
		}
	}
}

// The README is a front door: what is longer has a page of its own.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	const most = 120
	if n := strings.Count(page(t, "README.md"), "\n"); n > most {
		t.Errorf("the README has %d lines, more than %d: move what is longer to docs", n, most)
	}
}

// Relative links of all documents lead to a file, and each page is reached from the README.
func TestDocumentLinks(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	docs := pages(t)
	tops, err := filepath.Glob(root + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tops {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		docs[filepath.Base(path)] = string(b)
	}
	linked := map[string]bool{}
	for path, text := range docs {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			to := filepath.Join(filepath.Dir(path), target)
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links %s, which is not there", path, m[1])
			}
			linked[filepath.ToSlash(to)] = true
		}
	}
	for path := range docs {
		if strings.HasPrefix(path, "docs/") && !linked[path] {
			t.Errorf("no document links %s", path)
		}
	}
}

// Every exit code of the contract is in the table of docs/results.md, with the statuses that lead to it.
func TestReadmeExitCodes(t *testing.T) {
	t.Parallel()
	table := map[int]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| (.*) \|$`).FindAllStringSubmatch(page(t, "docs/results.md"), -1) {
		code, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		table[code] = row[2]
	}
	for _, code := range []int{
		workorder.ExitOK, workorder.ExitGeneral, workorder.ExitNotFound, workorder.ExitNoProject, workorder.ExitPort, workorder.ExitBox, workorder.ExitInvalid,
		workorder.ExitGit, workorder.ExitTaskFailed, workorder.ExitInterrupted, workorder.ExitTimeout, workorder.ExitBudget, workorder.ExitParked, workorder.ExitUnproven, workorder.ExitUsage,
	} {
		if table[code] == "" {
			t.Errorf("exit code %d is not in the table", code)
		}
	}
	for _, s := range []workorder.Status{
		workorder.StatusSuccess, workorder.StatusUnproven, workorder.StatusNoChanges, workorder.StatusFailed, workorder.StatusInterrupted,
		workorder.StatusTimeout, workorder.StatusBudgetExceeded, workorder.StatusLost,
	} {
		if code := workorder.ExitCode(s, workorder.EndedByAgent); !strings.Contains(table[code], "`"+string(s)+"`") {
			t.Errorf("the row of exit code %d does not name the status %s", code, s)
		}
	}
}

// Commands and flags that the README and the pages name exist.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	root := newRootCmd(cmdutil.New(cmdutil.IO{}, app.Env{}))
	root.InitDefaultCompletionCmd()
	var all []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { all = append(all, "--"+f.Name) })
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	// Flags of other programs that the pages mention.
	others := []string{"--add", "--format", "--unshallow", "--global", "--privileged", "--userns", "--rm", "--refs", "--delete", "--init"}
	for path, text := range pages(t) {
		if path == "docs/attacks.md" { // it quotes what an agent tried with other programs
			continue
		}
		for _, m := range regexp.MustCompile("(?:`(?:sandbox-agent )?|(?m:^\\$ sandbox-agent ))(create|continue|revise|rebase|pr|cache|completion|demo|ps|logs|result|stop|rm|gc|doctor|image|network|preset|project|version)\\b((?: [a-z-]+)*)").FindAllStringSubmatch(text, -1) {
			cmd, _, err := root.Find(append([]string{m[1]}, strings.Fields(m[2])...))
			if err != nil || cmd == root {
				t.Errorf("%s names %q: %v", path, m[0], err)
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^\$ sandbox-agent ([a-z]\S*)`).FindAllStringSubmatch(text, -1) {
			if cmd, _, err := root.Find(m[1:]); err != nil || cmd == root {
				t.Errorf("%s shows the command %q: %v", path, m[0], err)
			}
		}
		for _, f := range regexp.MustCompile("--[a-z][a-z-]+").FindAllString(text, -1) {
			if !slices.Contains(all, f) && !slices.Contains(others, f) {
				t.Errorf("%s names the flag %s, which no command has", path, f)
			}
		}
	}
}

// TestReadmeRemovesRefs: the command for what is left of a task on the remote removes that and nothing else.
func TestReadmeRemovesRefs(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`(?m)^\$ (git ls-remote --refs origin .*)$`).FindStringSubmatch(page(t, "docs/tasks.md"))
	if line == nil {
		t.Fatal("the page has no such command")
	}
	srv := gittest.New(t, "")
	srv.Create(t, "r.git", nil)
	bare := filepath.Join(srv.Root, "r.git")
	work := filepath.Join(t.TempDir(), "w")
	gittest.Git(t, bare, "clone", "-q", bare, work)
	const stays = "refs/heads/agent/T-A1B2C3D4-x\nrefs/heads/main\nrefs/sandbox-agent/T-00000001/state"
	for _, ref := range append(strings.Split(stays, "\n"), workorder.StateRef(tid), workorder.CheckpointRef(tid), workorder.KeptRef(tid, "a/b")) {
		gittest.Git(t, bare, "update-ref", ref, "main")
	}
	for _, where := range []struct{ dir, origin string }{{work, "origin"}, {bare, "."}} {
		gittest.Git(t, bare, "update-ref", workorder.StateRef(tid), "main")
		command := strings.NewReplacer("T-XXXXXXXX", tid, "origin", where.origin).Replace(line[1])
		if out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"sh", "-c", command}, Dir: where.dir}); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
		if got := gittest.Git(t, bare, "for-each-ref", "--format=%(refname)"); strings.TrimSpace(got) != stays {
			t.Errorf("in %s: %s", where.dir, got)
		}
	}
}
