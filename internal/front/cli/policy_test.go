package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/netrules"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// recordedTask puts a task into a state folder whose last attempt left a result, and
// its former one events only. It returns the app and its output.
func recordedTask(t *testing.T, network *workorder.NetworkReport, former []workorder.Event) (*cmdutil.Factory, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	rec := &taskstore.Record{TaskID: "T-A1B2C3D4", CreatedAt: time.Now(), Collected: true, Status: workorder.StatusSuccess, Attempt: 1}
	if former != nil {
		rec.PastAttempts, rec.Attempt = []taskstore.Attempt{{Number: 1, ID: "0123456789abcdef", Status: workorder.StatusLost}}, 2
	}
	lock, err := taskstore.New(dir).Create(rec)
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	res := workorder.Result{TaskID: rec.TaskID, Status: workorder.StatusSuccess, Network: network}
	b, err := res.Encode()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(rec.Dir, workorder.ResultFile), string(b))
	if former != nil {
		past, err := rec.At(1)
		if err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		for _, e := range former {
			b, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			lines.Write(append(b, '\n'))
		}
		write(t, filepath.Join(past.Dir, workorder.EventsFile), lines.String())
	}
	var out, errs bytes.Buffer
	return cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}, app.Env{
		Getenv: func(name string) string {
			return map[string]string{"SANDBOX_AGENT_STATE_DIR": dir}[name]
		},
	}), &out, &errs
}

func TestPolicyLearn(t *testing.T) {
	t.Parallel()
	report := &workorder.NetworkReport{Mode: workorder.NetworkRestricted, Hosts: []workorder.NetworkHost{
		{Host: "registry.example", Port: 443, Protocol: "tcp", Status: "learned", Count: 12, By: []string{"npm (pid 7)", evil + "\n    - evil.example"}, Rule: "- registry.example"},
		{Host: "pastebin.com", Port: 443, Protocol: "tcp", Status: "refused", Count: 1, By: []string{"curl (pid 9)"}, Rule: "- pastebin.com"},
		{Host: "2001:db8::1", Port: 22, Protocol: "tcp", Status: "refused", Count: 1, Rule: `- "[2001:db8::1]:22"`},
		{Host: "169.254.169.254\n  allow: [all]", Port: 80, Protocol: "tcp", Status: "refused", Count: 2, Reason: evil + "\nallow: [all]"},
	}}
	former := []workorder.Event{{Seq: 1, Type: workorder.EventNetwork, Name: "lost.example:8443", Status: "refused", By: "go (pid 3)", Fix: "- lost.example:8443"}}
	a, out, errs := recordedTask(t, report, former)
	run := func(args string) int {
		out.Reset()
		errs.Reset()
		return Main(t.Context(), a, append([]string{"network", "suggest"}, strings.Fields(args)...))
	}
	if code := run("a1b2"); code != 0 || errs.Len() != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	const want = `network:
  mode: restricted
  allow:
    - '[2001:db8::1]:22'  # 1× refused
    - lost.example:8443   # 1× refused: go
    - pastebin.com        # 1× refused: curl
    - registry.example    # 12× learned: npm, before` + "\ufffdafter - evil.example" + `
`
	got := ""
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			got += line
		}
	}
	if got != want || obeyed(out.String()) {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	for _, after := range []string{"\n    - pastebin.com ", "169.254.169.254", "T-A1B2C3D4"} {
		before, _, ok := strings.Cut(out.String(), after)
		if at := strings.LastIndex(before, "\n") + 1; !ok || !strings.HasPrefix(strings.TrimSpace(before[at:]), "#") {
			t.Errorf("no comment with, or above, %q:\n%s", after, out)
		}
	}
	// It is what it says it is: a part of a project file, whatever a box has written.
	p, err := projects.Parse("x.yaml", []byte("name: x\n"+out.String()), projects.LoadOptions{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if got := strings.Join(p.Network.Allow, " "); got != "[2001:db8::1]:22 lost.example:8443 pastebin.com registry.example" {
		t.Errorf("rules %s", got)
	}
	if code := run("A1B2 --status learned"); code != 0 || strings.Contains(out.String(), "pastebin") || !strings.Contains(out.String(), "registry.example") {
		t.Errorf("exit %d: %s", code, out)
	}
	if code := run("A1B2 --status allowed"); code != 0 || !strings.Contains(out.String(), "allow: []") {
		t.Errorf("exit %d: %s", code, out)
	}
	code := run("A1B2 --json")
	var l netrules.Learned
	if err := json.Unmarshal(out.Bytes(), &l); err != nil || code != 0 || len(l.Allow) != 4 || len(l.Attempts) != 2 || len(l.Never) != 1 || l.Mode != workorder.NetworkRestricted {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
	if code := run("A1B2 --status maybe"); code != workorder.ExitUsage {
		t.Errorf("exit %d", code)
	}
	if code := run("T-ZZZZZZZZ"); code != workorder.ExitNotFound {
		t.Errorf("exit %d", code)
	}
}

func TestPolicyLearnNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		report *workorder.NetworkReport
		code   int
		says   string
	}{
		"full":       {&workorder.NetworkReport{Mode: workorder.NetworkFull, Hosts: []workorder.NetworkHost{{Host: "169.254.169.254", Status: "refused"}}}, workorder.ExitGeneral, "network: full"},
		"early":      {nil, workorder.ExitGeneral, "hint: "},
		"restricted": {&workorder.NetworkReport{Mode: workorder.NetworkRestricted}, 0, "allow: []"},
	} {
		a, out, errs := recordedTask(t, c.report, nil)
		code := Main(t.Context(), a, []string{"network", "suggest", "T-A1B2C3D4"})
		if all := out.String() + errs.String(); code != c.code || !strings.Contains(all, c.says) || code != 0 && !strings.Contains(all, "network: {mode: restricted, learn: true}") {
			t.Errorf("%s: exit %d: %s", name, code, all)
		}
	}
}

// A result that is gone says nothing.
func TestPolicyLearnGone(t *testing.T) {
	t.Parallel()
	a, out, errs := recordedTask(t, &workorder.NetworkReport{Mode: workorder.NetworkRestricted}, []workorder.Event{{Type: "x"}})
	st, err := a.Store()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := st.Load("T-A1B2C3D4")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(rec.Dir, workorder.ResultFile)); err != nil {
		t.Fatal(err)
	}
	if code := Main(t.Context(), a, []string{"network", "suggest", "A1B2"}); code != workorder.ExitGeneral {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}
