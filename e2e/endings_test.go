//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// healthy is a service that works all the time, as services do: what it does must
// not be taken for the agent's doing.
const healthy = "services:\n  redis: {image: " + redisImage + ", healthcheck: {test: [redis-cli, ping], interval: 300ms}}\n"

// burn uses the processor for longer than the hang timeout of these tests, and says nothing.
const burn = "timeout 15 sh -c 'while :; do :; done' || test $? = 124"

// Every ending lands, is told in the same way by exit code, result and remote,
// and can be gone on from: with each change a few are, of which each is resumable in a way of its own.
func TestEndings(t *testing.T) {
	t.Parallel()
	for _, e := range []struct {
		name, head, script string
		more               []string // what the next command needs beside its own words
		status             workorder.Status
		by                 workorder.EndedBy
		reason             workorder.ReasonCode
		names              string // what the reason names
		nightly            bool   // the row
		goesOn             bool   // by another box with each change, not only at night
	}{
		{
			name: "time", nightly: true, head: "timeout_minutes: 0.4\n", script: deaf,
			status: workorder.StatusTimeout, by: workorder.EndedByTimeout, reason: workorder.ReasonTimeout,
		},
		{
			name: "budget", nightly: true, head: "max_budget_usd: 1\n", script: `echo '{"type":"agent.usage","usage":{"cost_usd":1.25}}'` + deaf, more: []string{"--max-budget-usd", "5"},
			status: workorder.StatusBudgetExceeded, by: workorder.EndedByBudget, reason: workorder.ReasonBudget, names: "1.25",
		},
		{
			name: "validation", goesOn: true, head: "validate: {check: test -e finished}\n", script: "true",
			status: workorder.StatusUnproven, by: workorder.EndedByValidation, reason: workorder.ReasonAsBefore, names: "check",
		},
		{name: "agent's error", nightly: true, script: "exit 3", status: workorder.StatusFailed, by: workorder.EndedByAgent, reason: workorder.ReasonAgent, names: "3"},
		{name: "agent killed", nightly: true, script: "kill -9 $$", status: workorder.StatusFailed, by: workorder.EndedByAgent, reason: workorder.ReasonAgent, names: "SIGKILL"},
		{
			name: "limit of unknown length", nightly: true, script: `echo '{"type":"limit","text":"come back later"}'` + deaf,
			status: workorder.StatusParked, by: workorder.EndedByLimit, reason: workorder.ReasonProviderLimit, names: "come back later",
		},
		{
			name: "hang", goesOn: true, head: healthy + "hang_timeout: 3s\n", script: "sleep 600",
			status: workorder.StatusFailed, by: workorder.EndedByHang, reason: workorder.ReasonHang, names: "sleep 600",
		},
		{
			name: "hang in a container", nightly: true, head: healthy + "hang_timeout: 4s\n", script: "docker run --rm " + redisImage + " sleep 600",
			status: workorder.StatusFailed, by: workorder.EndedByHang, reason: workorder.ReasonHang,
		},
		{
			name: "children and stdout held open", head: "hang_timeout: 3s\n", script: "sh -c 'trap \"\" TERM HUP INT; exec sleep 600' &\nsetsid -f sleep 600\nexit 0",
			status: workorder.StatusSuccess, by: workorder.EndedByAgent,
		},
		{
			name: "a silent child at work", nightly: true, head: healthy + "hang_timeout: 3s\n", script: burn,
			status: workorder.StatusSuccess, by: workorder.EndedByAgent,
		},
		{
			// An engine that is still at making the container is no sign of life of the agent's.
			name: "a silent container at work", head: healthy + "hang_timeout: 10s\n", script: "docker run --rm " + redisImage + " " + burn,
			status: workorder.StatusSuccess, by: workorder.EndedByAgent,
		},
	} {
		if e.nightly && !nightly {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			k := newKept(t, nil)
			u := k.machine(t)
			c := u.run("", k.create(k.project(u, e.head, twice+e.script))...)
			r := k.ended(u, c, e.status, e.by)
			landed(t, k.bare, r)
			if r.Reasons.Code() != e.reason || !strings.Contains(r.Reasons.String(), e.names) {
				t.Errorf("reason %s (%s), want %s with %q", r.Reasons, r.Reasons.Code(), e.reason, e.names)
			}
			if k.ref(t, workorder.CheckpointRef(k.id)) != "" || r.Checkpoint != nil {
				t.Errorf("all is in the branch, and there is the checkpoint %+v", r.Checkpoint)
			}
			if e.by == workorder.EndedByHang {
				k.evidence(u, r)
			}
			if e.status == workorder.StatusSuccess || !e.goesOn && !nightly {
				return
			}
			args := append([]string{"continue", k.id}, e.more...)
			if r.Resumable {
				args = append(strings.Fields(r.NextCommand)[1:], e.more...)
			}
			k.finished(t, k.ended(u, u.run("", args...), workorder.StatusSuccess, workorder.EndedByAgent))
		})
	}
}

// evidence checks what was saved of a hang.
func (k *kept) evidence(u *user, r *workorder.Result) {
	u.t.Helper()
	i := slices.IndexFunc(r.Evidence, func(e workorder.Evidence) bool { return e.Path == "evidence/hang-1.txt" && e.Kind == "hang" })
	if i < 0 {
		u.t.Fatalf("no evidence of the hang: %+v", r.Evidence)
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(resultPath(u.t, u, k.id)), r.Evidence[i].Path))
	if err != nil {
		u.t.Fatal(err)
	}
	for _, want := range []string{"sleep 600", "redis-server", "agent-is-busy"} {
		if !strings.Contains(string(b), want) {
			u.t.Errorf("the evidence lacks %q:\n%s", want, b)
		}
	}
}

// A task whose provider refuses more is parked: no box waits for the limit, and
// nobody goes on before it resets but who says so.
func TestParked(t *testing.T) {
	t.Parallel()
	k := newKept(t, nil)
	here, there := k.machine(t), k.machine(t)
	project := k.project(here, "", twice+`echo "{\"type\":\"limit\",\"resume_at\":\"$(date -u -d '+1 hour' +%FT%TZ)\",\"text\":\"session limit\"}"`+deaf)
	before := time.Now()
	r := k.ended(here, here.run("", k.create(project)...), workorder.StatusParked, workorder.EndedByLimit)
	landed(t, k.bare, r)
	if at := r.ResumeAt; at == nil || at.Before(before.Add(59*time.Minute)) || at.After(time.Now().Add(61*time.Minute)) {
		t.Errorf("it can go on at %v", r.ResumeAt)
	}
	if last := k.state(t).Last(); last.ResumeAt == nil || r.ResumeAt == nil || !last.ResumeAt.Equal(*r.ResumeAt) {
		t.Errorf("the remote says %v, the result %v", last.ResumeAt, r.ResumeAt)
	}
	for _, u := range []*user{here, there} {
		for _, args := range [][]string{
			{"continue", "--task-id", k.id, "--project", project},
			k.create(project, "--if-exists", "continue"),
		} {
			if c := u.run("", args...); c.code != workorder.ExitParked {
				t.Errorf("%s before the limit resets: exit code %d", args[0], c.code)
			}
		}
	}
	k.boxes(t, 1)
	c := there.run("", "continue", "--now", "--task-id", k.id, "--project", project)
	k.finished(t, k.ended(there, c, workorder.StatusSuccess, workorder.EndedByAgent))
}

// The engine in the box dies under the agent's work, which lands as ever.
func TestInnerEngineKilled(t *testing.T) {
	t.Parallel()
	ends := map[string]string{"agent uses it": "docker ps; exit 0"}
	if nightly {
		ends["agent ends"], ends["agent fails"] = "exit 0", "exit 3"
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKept(t, nil)
			u := k.machine(t)
			s := k.begin(u, k.project(u, healthy, twice+await("end")+end))
			k.in(t, "pkill", "-9", "-x", "dockerd")
			k.tell(t, "end")
			status := workorder.StatusSuccess
			if end == "exit 3" {
				status = workorder.StatusFailed
			}
			landed(t, k.bare, k.ended(u, s.wait(), status, workorder.EndedByAgent))
		})
	}
}

// An agent that looks is told in time that its time or money runs out.
func TestNotice(t *testing.T) {
	t.Parallel()
	type notice struct{ head, before, text string }
	notices := map[string]notice{
		"money": {head: "max_budget_usd: 1\n", before: `echo '{"type":"agent.usage","usage":{"cost_usd":0.85}}'`, text: "$0.85 of $1.00"},
	}
	if nightly {
		notices["time"] = notice{head: "timeout_minutes: 0.4\n", text: "% of the time"}
	}
	for name, n := range notices {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKept(t, nil)
			u := k.machine(t)
			c := u.run("", k.create(k.project(u, n.head, "test -e \"$SANDBOX_AGENT_NOTICE_FILE\" && exit 9\n"+n.before+
				"\nuntil test -e \"$SANDBOX_AGENT_NOTICE_FILE\"; do sleep 0.1; done\ncat \"$SANDBOX_AGENT_NOTICE_FILE\" >told"), "--json")...)
			r := k.ended(u, c, workorder.StatusSuccess, workorder.EndedByAgent)
			if got := k.show(t, r.Branch, "told"); !strings.Contains(got, n.text) {
				t.Errorf("the agent was told %q", got)
			}
			if strings.Count(c.stdout, `"type":"notice"`) != 1 {
				t.Error("the record does not have one notice")
			}
		})
	}
}
