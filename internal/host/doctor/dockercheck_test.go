package doctor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor"
)

func TestNames(t *testing.T) {
	total := 0
	for _, p := range doctor.DockerParts() {
		names, err := doctor.DockerChecks(p)
		if err != nil || len(names) < 10 {
			t.Errorf("%s: %d checks, %v", p, len(names), err)
		}
		total += len(names)
	}
	files, err := doctor.DockerFiles()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Count(files["checks.sh"], "\tcheck \""); total != want {
		t.Errorf("%d checks in the parts, %d in the script", total, want)
	}
	if _, err := doctor.DockerChecks("nothing"); err == nil {
		t.Error("a part that is not there has names")
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string]doctor.DockerCheck{
		"check: ok compose up":                       {Part: "lazy", Name: "compose up", OK: true},
		"check: FAIL build|exit code 1|no such|x|":   {Part: "lazy", Name: "build", Detail: "exit code 1|no such|x"},
		"check: FAIL root's files cannot be read|e|": {Part: "lazy", Name: "root's files cannot be read", Detail: "e"},
	} {
		if got, ok := doctor.ParseDockerCheck(doctor.Lazy, line); !ok || got != want {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
	for _, line := range []string{"", "ok x", "== x", "check: maybe x", "check: ok", "check: ok "} {
		if got, ok := doctor.ParseDockerCheck(doctor.Lazy, line); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func TestMissing(t *testing.T) {
	names, err := doctor.DockerChecks(doctor.Lazy)
	if err != nil {
		t.Fatal(err)
	}
	var done []doctor.DockerCheck
	for _, n := range names[:len(names)-2] {
		done = append(done, doctor.DockerCheck{Part: doctor.Lazy, Name: n, OK: true})
	}
	missing, err := doctor.MissingDockerChecks(doctor.Lazy, done, "the box died")
	if err != nil || len(missing) != 2 || missing[0].OK || missing[0].Name != names[len(names)-2] || missing[0].Detail != "did not run: the box died" {
		t.Errorf("%+v, %v", missing, err)
	}
}

// The script brings the files along byte for byte, and its report is what Parse reads.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	script, err := doctor.DockerScript(doctor.Lazy)
	if err != nil {
		t.Fatal(err)
	}
	// No Docker here: every check fails at once, and says so.
	bare := t.TempDir()
	for _, tool := range []string{"bash", "cat", "cut", "dirname", "grep", "tail", "timeout", "tr", "true"} {
		path, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bare, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first, _, _ := strings.Cut(script, "exec bash")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", first+`exec bash -c 'sleep() { :; }; seq() { :; }; export -f sleep seq; . ./checks.sh lazy'`)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + bare, "SANDBOX_AGENT_TASK_ID=T-A1B2C3D4"}
	out, _ := cmd.CombinedOutput() // every check fails
	files, err := doctor.DockerFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s is not as it was: %v", name, err)
		}
	}
	names, err := doctor.DockerChecks(doctor.Lazy)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		if c, ok := doctor.ParseDockerCheck(doctor.Lazy, strings.TrimSpace(line)); ok {
			got = append(got, c.Name)
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("verdicts of %q, want %q in\n%s", got, names, out)
	}
}
