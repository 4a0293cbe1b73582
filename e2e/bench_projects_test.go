//go:build e2e && bench

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// projectRounds of a project: its checks take up to a minute.
const projectRounds = 3

// benchProject is a project of somebody else's, as it was published.
type benchProject struct {
	files map[string]string
	tools string
	setup string
	check string
	edit  string // what the agent does: a change that makes the checks run again
}

// TestBenchProjects prints what a task costs in a real project whose setup an earlier task did, beside setup and two runs of the checks by hand
// on this machine, with warm caches, in the same minutes. It asserts nothing about time.
func TestBenchProjects(t *testing.T) {
	npm := npmPackage(t, "fastq@1.17.1")
	npm[".gitignore"] = "node_modules/\n.nyc_output/\n"
	projects := map[string]benchProject{
		"Go: uber-go/zap 1.27": {
			files: module(t, "go.uber.org/zap@v1.27.0"), setup: "go mod download", check: "go test ./... && go vet ./...",
			tools: `{go: ">=1.19"}`, edit: `printf 'package zap\n\nimport "os"\n\nvar _ = os.Getenv("ROUND")\n' >round.go`, // every test binary of the package is another one
		},
		"npm: fastq 1.17": {
			files: npm, setup: "npm install --no-package-lock", check: "npm test",
			tools: "{}", edit: "echo '// ROUND' >>queue.js",
		},
	}
	u := newCacheUser(t)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "what (median of %d), ms\thost: setup\tone run of checks\t1.5 × (setup + two runs) + 2 s\twhole create\tsetup of the first task\tof a later one\t%%\n", projectRounds)
	for _, name := range slices.Sorted(maps.Keys(projects)) {
		p := projects[name]
		host := p.onHost(t)
		first, boxes, setups := time.Duration(0), []time.Duration(nil), []time.Duration(nil)
		repo := u.repo(p.files)
		for round := range projectRounds + 1 {
			start := time.Now()
			r := p.task(u, repo, round)
			if took := time.Since(start); round > 0 {
				boxes = append(boxes, took)
			}
			s := r.Step(workorder.StepSetup)
			if s == nil {
				t.Fatalf("%s: no setup", name)
			}
			if d := time.Duration(s.DurationMS) * time.Millisecond; round == 0 {
				first = d
			} else {
				setups = append(setups, d)
			}
		}
		bound := (median(host.setup)+2*median(host.check))*3/2 + 2*time.Second
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\n", name, median(host.setup).Milliseconds(), median(host.check).Milliseconds(), bound.Milliseconds(),
			median(boxes).Milliseconds(), first.Milliseconds(), median(setups).Milliseconds(), 100*float64(median(setups))/float64(first))
	}
	_ = w.Flush()
}

// task is one whole run.
func (p *benchProject) task(u *user, repo string, round int) *workorder.Result {
	u.t.Helper()
	c := u.run("", "create", "--task", "x", "--repo", repo, "-p", u.project(scripted(fmt.Sprintf("tools: %s\nlifecycle: {setup: [%q]}\nvalidate: {test: %q}\n", p.tools, p.setup, p.check),
		p.change(round))))
	r := u.result(c.task(u.t))
	if c.code != 0 || r.Status != workorder.StatusSuccess || r.Proof == nil || len(r.Proof.Checks) != 1 {
		u.t.Fatalf("exit code %d, %s, %+v; proof %+v", c.code, r.Status, r.Reasons, r.Proof)
	}
	return r
}

func (p *benchProject) change(round int) string {
	return strings.ReplaceAll(p.edit, "ROUND", fmt.Sprint("R", round, time.Now().UnixNano()))
}

type hostTimes struct{ setup, check []time.Duration }

// onHost does the same by hand: in one folder with caches of its own, the first time not counted.
func (p *benchProject) onHost(t *testing.T) (h hostTimes) {
	t.Helper()
	home, dir := t.TempDir(), t.TempDir()
	for name, text := range p.files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := append(os.Environ(), "HOME="+home, "GOPATH="+home+"/go", "GOCACHE="+home+"/cache", "GOFLAGS=-modcacherw")
	timed := func(command string) time.Duration {
		start := time.Now()
		if out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"sh", "-c", command + " 2>&1"}, Dir: dir, Env: env}); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return time.Since(start)
	}
	for round := range projectRounds + 1 {
		setup := timed(p.setup)
		timed(p.change(round))
		check := timed(p.check)
		if round > 0 {
			h.setup, h.check = append(h.setup, setup), append(h.check, check)
		}
	}
	return h
}
