//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Detached: the id, and no more; everything else from other processes.
func TestDetach(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.repo(map[string]string{"README": "x"})
	c := u.run("", "create", "--detach", "--task", "x", "--repo", repo, "-p", u.project(scripted("", busy+await("end"))))
	if strings.TrimSpace(c.stdout) != c.task(t) {
		t.Errorf("standard output is %q, want the task id alone", c.stdout)
	}
	id := strings.TrimSpace(lastLine(c.stdout))
	if c.code != 0 || !workorder.ValidTaskID(id) {
		t.Fatalf("exit code %d, printed %q", c.code, c.stdout)
	}
	if c := u.run("", "result", id); c.code == 0 || c.stdout != "" {
		t.Errorf("result of a run that goes on: exit code %d", c.code)
	}
	if c := u.run("", "rm", id); c.code == 0 {
		t.Error("rm removed a run that goes on")
	}
	if c := u.run("", "gc"); c.code != 0 || strings.Contains(c.stdout, id) {
		t.Errorf("gc touched a run that goes on: %s", c.stdout)
	}
	rows := u.ps()
	if len(rows) != 1 || rows[0].TaskID != id || rows[0].Status != "running" {
		t.Errorf("ps: %+v", rows)
	}
	following := u.start("", "logs", "-f", id[2:6])
	following.waitFor("agent-is-busy")
	tell(t, "sandbox-agent-"+id, "end")
	if follow := following.wait(); follow.code != 0 {
		t.Errorf("logs -f: exit code %d", follow.code)
	}
	landed(t, repo, u.result(id))
	if rows := u.ps(); len(rows) != 1 || rows[0].Status != "success" {
		t.Errorf("ps: %+v", rows)
	}
	if c := u.run("", "logs", strings.ToLower(id)); c.code != 0 || strings.Count(c.stdout, "agent-is-busy") != 1 {
		t.Errorf("logs afterwards: exit code %d", c.code)
	}
	if c := u.run("", "rm", id); c.code != 0 {
		t.Errorf("rm: exit code %d", c.code)
	}
	if c := u.run("", "result", id); c.code != workorder.ExitNotFound {
		t.Errorf("result of a task that is not known: exit code %d", c.code)
	}
}

// A detached run that nobody follows is collected by gc.
func TestGCCollects(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.repo(map[string]string{"README": "x"})
	create := func(script string) string {
		c := u.run("", "create", "--detach", "--task", "x", "--repo", repo, "-p", u.project(scripted("", script)))
		return strings.TrimSpace(lastLine(c.stdout))
	}
	short, long := create(busy), create(busy+"sleep 600")
	boxEnds(t, "sandbox-agent-"+short)
	if c := u.run("", "gc", "--dry-run"); c.code != 0 || !strings.Contains(c.stdout, short) || strings.Contains(c.stdout, long) {
		t.Errorf("gc --dry-run: exit code %d, %s", c.code, c.stdout)
	}
	if len(ours(t, short)) != 1 {
		t.Error("gc --dry-run removed a box")
	}
	if c := u.run("", "gc"); c.code != 0 || !strings.Contains(c.stdout, short) {
		t.Errorf("gc: exit code %d, %s", c.code, c.stdout)
	}
	landed(t, repo, u.result(short))
	if cs := ours(t, long); len(cs) != 1 || cs[0].State != "running" {
		t.Errorf("gc ended a box that works: %+v", cs)
	}
	if c := u.run("", "rm", "--force", long); c.code != 0 {
		t.Errorf("rm --force: exit code %d", c.code)
	}
}

// A kept box is for looking inside, and rm is its end.
func TestKeep(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	c := u.run("", "create", "--keep", "--task", "x", "-p", u.project(scripted("", "echo here >kept")))
	id := c.task(t)
	cs := ours(t, id)
	if c.code != 0 || len(cs) != 1 || cs[0].State != "exited" {
		t.Fatalf("exit code %d, containers %+v", c.code, cs)
	}
	// It is confined and bounded without the project's saying so.
	in, err := eng.ContainerInspect(t.Context(), cs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if h := in.HostConfig; h.Privileged || len(h.Binds) != 0 || !slices.Equal(h.CapDrop, []string{"ALL"}) || h.Memory == 0 || h.PidsLimit == nil || *h.PidsLimit == 0 {
		t.Errorf("host config %+v", h)
	}
	if !strings.Contains(c.stdout, "sandbox-agent-"+id) {
		t.Error("it does not name the box")
	}
	if _, err := eng.ContainerStatPath(t.Context(), cs[0].ID, workorder.Workspace+"/kept"); err != nil {
		t.Error(err)
	}
	if c := u.run("", "gc"); c.code != 0 || len(ours(t, id)) != 1 {
		t.Errorf("gc removed what was to be kept: %s", c.stdout)
	}
	if c := u.run("", "rm", id); c.code != 0 || len(ours(t, id)) != 0 {
		t.Errorf("rm: exit code %d, %d containers left", c.code, len(ours(t, id)))
	}
}

// With --json standard output is the record, line by line, to the result.
func TestJSONLines(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	scripts := map[string]string{"failed": busy + "exit 3"}
	if nightly {
		scripts["success"] = busy
	}
	for name, script := range scripts {
		repo := u.repo(map[string]string{"README": "x"})
		c := u.run("", "create", "--json", "--task", "x", "--repo", repo, "-p", u.project(scripted("", script)))
		lines := strings.Split(strings.TrimSuffix(c.stdout, "\n"), "\n")
		var seq int64
		for i, line := range lines {
			e, err := workorder.DecodeEvent([]byte(line))
			if err != nil || e.Type == "" || e.Time.IsZero() {
				t.Fatalf("line %d is no event: %q (%v)", i, line, err)
			}
			if e.Seq != 0 {
				if e.Seq != seq+1 {
					t.Errorf("event %d comes after %d", e.Seq, seq)
				}
				seq = e.Seq
			}
			if i == 0 && (e.Type != workorder.EventTask || e.ID != c.task(t) || e.Name != u.result(e.ID).Branch) {
				t.Errorf("the first line is %q", line)
			}
			if last := i == len(lines)-1; last != (e.Type == workorder.EventResult) {
				t.Errorf("line %d of %d is a %s", i, len(lines), e.Type)
			} else if last && (e.Result == nil || string(e.Result.Status) != name || c.code != workorder.ExitCode(e.Result.Status, e.Result.EndedBy)) {
				t.Errorf("exit code %d, the last line is %q", c.code, line)
			} else if last {
				if diff := cmp.Diff(u.result(e.Result.TaskID), e.Result); diff != "" || e.Status != name {
					t.Errorf("the last line is not the result on disk: %s", diff)
				}
				if name == "failed" && e.Result.Reasons.Code() != workorder.ReasonAgent {
					t.Errorf("reason %s", e.Result.Reasons)
				}
			}
		}
		if strings.Contains(c.stderr, "goroutine ") {
			t.Error(c.stderr)
		}
	}
}

// A second run with the same service image needs no transfer of it, also beside another one; other projects have the
// same box. TestSharedLayers has boxes that share the layers from the first on.
func TestRunsShareImages(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	withRedis := u.project(scripted("services:\n  redis:\n    image: "+redisImage+"\n", "printf 'PING\\r\\nQUIT\\r\\n' | nc redis 6379 | grep PONG"))
	plain := u.project(strings.Replace(scripted("validate:\n  go: \"true\"\n", "true"), "name: e2e", "name: other", 1))
	first := u.start("", "create", "--json", "--task", "x", "-p", withRedis)
	calls := []call{first.wait()}
	second := u.start("", "create", "--json", "--task", "x", "-p", withRedis)
	other := u.start("", "create", "--json", "--task", "x", "-p", plain)
	calls = append(calls, second.wait(), other.wait())
	images := map[string]bool{}
	for _, c := range calls {
		r := u.result(c.task(t))
		if c.code != 0 {
			t.Errorf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
		}
		images[r.Image.ID] = true
	}
	if len(images) != 1 || images[""] {
		t.Errorf("the projects ran in the images %v", images)
	}
	if strings.Contains(calls[1].stdout, `"type":"`+string(workorder.EventImageRequest)+`"`) {
		t.Error("the image was transferred again")
	}
}

// The output goes where the user says, complete and in the layout that scripts know.
func TestOutFolder(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	out := filepath.Join(t.TempDir(), "deep", "out")
	repo := u.repo(map[string]string{"README": "x"})
	c := u.run("", "create", "--out", out, "--task", "x", "--repo", repo, "-p", u.project(scripted("validate:\n  a: echo checked\n", busy)))
	id := c.task(t)
	for _, name := range []string{workorder.ResultFile, workorder.EventsFile, workorder.OrderFile, "logs/agent.stdout.log", "logs/validate-a.log", workorder.EvidenceDir} {
		if _, err := os.Stat(filepath.Join(out, id, name)); err != nil {
			t.Error(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(out, id, workorder.OrderFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := workorder.DecodeOrder(b); err != nil {
		t.Error(err)
	}
	if got := filepath.Dir(resultPath(t, u, id)); got != filepath.Join(out, id) {
		t.Errorf("result --path says %s", got)
	}
	landed(t, repo, u.result(id))
	if c := u.run("", "rm", id); c.code != 0 {
		t.Errorf("rm: exit code %d", c.code)
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 0 {
		t.Errorf("rm left %v (%v)", entries, err)
	}
	if got := gittest.Git(t, repo, "branch", "--list", "agent/*"); got == "" {
		t.Error("rm took the branch")
	}
}

// A process that the program starts never keeps its reader waiting.
func TestPipedOutput(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.repo(map[string]string{"README": "x"})
	pipe := func(tail string, args ...string) string {
		t.Helper()
		b, err := proc.Output(t.Context(), proc.Spec{
			Argv: append([]string{"sh", "-c", `"$@" | ` + tail, "sh", bin}, args...), Dir: u.dir, Env: u.env,
		})
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	project := u.project(scripted("services:\n  redis:\n    image: "+redisImage+"\n", busy+await("end")))
	id := strings.TrimSpace(lastLine(pipe("cat", "create", "-d", "--task", "x", "--repo", repo, "-p", project)))
	if rows := u.ps(); len(rows) != 1 || rows[0].Status != "running" {
		t.Errorf("the pipe ended with the run: %+v", rows)
	}
	// A reader that leaves ends the reading, not the run.
	pipe("head -n 1", "logs", "-f", id)
	tell(t, "sandbox-agent-"+id, "end")
	pipe("cat", "logs", "-f", id)
	landed(t, repo, u.result(id))
	// One that leaves at once ends the command, as with any other; what had begun is found.
	id = taskID.FindString(pipe("head -n 1", "create", "--task", "x", "--repo", repo, "-p", u.project(scripted("", busy))))
	pipe("cat", "logs", "-f", id)
	u.result(id)
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	if c := u.run("", "doctor"); c.code != 0 {
		t.Errorf("exit code %d", c.code)
	}
}

// psRow is what scripts read of `ps --json`.
type psRow struct {
	TaskID string `json:"task_id"`
	Status string `json:"status"`
}

func (u *user) ps() []psRow {
	u.t.Helper()
	c := u.run("", "ps", "--json")
	var rows []psRow
	if err := json.Unmarshal([]byte(c.stdout), &rows); err != nil || c.code != 0 {
		u.t.Fatalf("ps --json: exit code %d, %v", c.code, err)
	}
	return rows
}

func lastLine(s string) string {
	s = strings.TrimSuffix(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}
