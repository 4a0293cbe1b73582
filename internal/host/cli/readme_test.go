package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/git/gittest"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReadmeProjectFileIsValid(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readme(t), -1)
	if len(blocks) == 0 {
		t.Fatal("the README shows no project file")
	}
	for _, b := range blocks {
		p, err := projects.Parse("README.md", []byte(b[1]), projects.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Order(projects.OrderInput{Task: "x"}); err != nil {
			t.Error(err)
		}
	}
}

// Every exit code of the contract is in the README's table, with the statuses that lead to it.
func TestReadmeExitCodes(t *testing.T) {
	t.Parallel()
	table := map[int]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| (.*) \|$`).FindAllStringSubmatch(readme(t), -1) {
		code, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		table[code] = row[2]
	}
	for _, code := range []int{
		workorder.ExitOK, workorder.ExitGeneral, workorder.ExitNotFound, workorder.ExitNoProject, workorder.ExitBox, workorder.ExitInvalid,
		workorder.ExitGit, workorder.ExitTaskFailed, workorder.ExitInterrupted, workorder.ExitTimeout, workorder.ExitBudget, workorder.ExitParked, workorder.ExitUsage,
	} {
		if table[code] == "" {
			t.Errorf("exit code %d is not in the table", code)
		}
	}
	for _, s := range []workorder.Status{
		workorder.StatusSuccess, workorder.StatusNoChanges, workorder.StatusFailed, workorder.StatusInterrupted,
		workorder.StatusTimeout, workorder.StatusBudgetExceeded, workorder.StatusLost,
	} {
		if code := workorder.ExitCode(s, workorder.ByAgent); !strings.Contains(table[code], "`"+string(s)+"`") {
			t.Errorf("the row of exit code %d does not name the status %s", code, s)
		}
	}
}

// Commands and flags that the README names exist.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	root := newRootCmd(&App{})
	text := readme(t)
	for _, m := range regexp.MustCompile("`(?:sandbox-agent )?(create|continue|cache|demo|ps|logs|result|stop|rm|gc|doctor|image|policy|project|version)((?: [a-z-]+)*)").FindAllStringSubmatch(text, -1) {
		cmd, _, err := root.Find(append([]string{m[1]}, strings.Fields(m[2])...))
		if err != nil || cmd == root {
			t.Errorf("the README names %q: %v", m[0], err)
		}
	}
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
	// Flags of other programs that the README mentions.
	others := []string{"--privileged", "--userns", "--rm", "--refs", "--delete"}
	for _, f := range regexp.MustCompile("--[a-z][a-z-]+").FindAllString(text, -1) {
		if !slices.Contains(all, f) && !slices.Contains(others, f) {
			t.Errorf("the README names the flag %s, which no command has", f)
		}
	}
}

// TestReadmeRemovesRefs: the command for what is left of a task on the remote removes that and nothing else.
func TestReadmeRemovesRefs(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`(?m)^\$ (git ls-remote --refs origin .*)$`).FindStringSubmatch(readme(t))
	if line == nil {
		t.Fatal("the README has no such command")
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
