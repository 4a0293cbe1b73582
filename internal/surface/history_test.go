package surface

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// historyCommits is how many commits of this repository's own history the test reads.
const historyCommits = 25

// Real history: no commit is an error, and every finding is fit to be shown. SURFACE_REPO names another repository,
// SURFACE_COMMITS the number of its commits; the share of commits with findings is logged.
func TestHistory(t *testing.T) {
	t.Parallel()
	dir, n := os.Getenv("SURFACE_REPO"), historyCommits
	if dir == "" {
		dir = "."
	}
	if v, err := strconv.Atoi(os.Getenv("SURFACE_COMMITS")); err == nil {
		n = v
	}
	if gittest.Git(t, dir, "rev-parse", "--is-shallow-repository") == "true" {
		n = 1
	}
	dir = gittest.Git(t, dir, "rev-parse", "--absolute-git-dir")
	repo := git.Repo{Dir: dir, Bare: true}
	shas := strings.Fields(gittest.Git(t, dir, "log", "--first-parent", "--format=%H %P", "-n", strconv.Itoa(n)))
	pairs := strings.Split(gittest.Git(t, dir, "log", "--first-parent", "--format=%H %P", "-n", strconv.Itoa(n)), "\n")
	if len(shas) == 0 {
		t.Fatal("no commits")
	}
	with, grave, lines := 0, 0, 0
	kinds := map[string]int{}
	for _, p := range pairs {
		f := append(strings.Fields(p), "")
		fs, err := Report(t.Context(), repo, f[1], f[0])
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, fs)
		lines += len(fs)
		if len(fs) > 0 {
			with++
		}
		isGrave := false
		for _, x := range fs {
			kinds[x.Kind]++
			isGrave = isGrave || x.Grave
		}
		if isGrave {
			grave++
		}
		if os.Getenv("SHOW") != "" && len(fs) > 0 {
			t.Logf("%.10s%s", f[0], show(fs))
		}
	}
	names := make([]string, 0, len(kinds))
	for k, v := range kinds {
		names = append(names, k+" "+strconv.Itoa(v))
	}
	slices.Sort(names)
	t.Logf("%d commits: %d with findings, %d with grave ones, %d lines: %s", len(pairs), with, grave, lines, strings.Join(names, ", "))
}
