//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// attackRow is one line of the table, as the attacker writes it.
type attackRow struct {
	Group    string `json:"group"`
	Name     string `json:"name"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
	Through  bool   `json:"through"`
	OK       bool   `json:"ok"`
}

// attackTable is a file for the rows of a run, when somebody wants them.
const attackTable = "SANDBOX_AGENT_ATTACK_TABLE"

// attackPIDs is the limit of the agent's processes: several times what the attacker and its containers need.
const attackPIDs = 1000

// An agent that means harm, in every network mode. Its attempts are in e2e/attack;
// the outside is played here, and has the last word on what arrived.
func TestAttack(t *testing.T) {
	t.Parallel()
	program := buildAttack(t)
	for _, mode := range workorder.NetworkModes() {
		if mode == workorder.NetworkNone && !nightly { // the policy refuses the same, and allows nothing
			continue
		}
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			attackSetup{program: program, mode: mode, isolation: "confined", host: addressOfItsOwn(t), engine: eng}.run(t)
		})
	}
}

// addressOfItsOwn is one of this machine that boxes reach and nobody else listens at: that of a bridge without containers.
func addressOfItsOwn(t *testing.T) string {
	t.Helper()
	n, err := eng.NetworkCreate(t.Context(), "sandbox-agent-e2e-"+rand.Text()[:8], network.CreateOptions{Driver: "bridge"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.NetworkRemove(context.WithoutCancel(t.Context()), n.ID); err != nil {
			t.Error(err)
		}
	})
	i, err := eng.NetworkInspect(t.Context(), n.ID, network.InspectOptions{})
	if err != nil || len(i.IPAM.Config) == 0 {
		t.Fatalf("%+v, %v", i.IPAM, err)
	}
	return i.IPAM.Config[0].Gateway
}

func buildAttack(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "attack")
	if _, err := proc.Output(t.Context(), proc.Spec{
		Argv: []string{"go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "../internal/test/attack"}, Env: append(os.Environ(), "CGO_ENABLED=0"),
	}); err != nil {
		t.Fatal(err)
	}
	return program
}

// attackSetup is one box with its outside.
type attackSetup struct {
	program   string // the attacker
	mode      workorder.NetworkMode
	isolation string
	host      string         // this machine as boxes see it
	engine    *client.Client // of the box
	env       []string       // of the command
	flags     []string       // that choose the box
}

func (a attackSetup) run(t *testing.T) {
	t.Helper()
	const canary = "cnry7d1f"
	mode := a.mode
	o := newOutside(t, canary, a.host)
	token := canary + "-of-git-0123456789"
	srv := gittest.NewAt(t, token, o.host)
	exe, err := os.ReadFile(a.program)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{
		"mode": string(mode), "host": o.host, "canary_reversed": reversed(canary), "model_url": o.modelURL,
		"origin": srv.URL + "/app.git", "pids": attackPIDs,
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	url := srv.Create(t, "app.git", map[string]string{"attack": string(exe), "config.json": string(raw)})
	allow := ""
	if mode == workorder.NetworkRestricted {
		allow = "\n  allow: [allowed.test@private, '*.wild.test@private', 'ssh.test:2222@private', 'port.test:8443@private']"
	}
	u := newUser(t, append([]string{
		"SANDBOX_AGENT_GIT_TOKEN=" + token, "MODEL=" + canary + "-of-the-model-0123456789", "SETUP=" + canary + "-of-setup-0123456789",
	}, a.env...)...)
	done := o.knock(t, a.engine)
	c := u.run("", append([]string{"create", "--task", "attack", "-p", u.project(`
name: attack
repo: ` + url + `
branch: main
limits: {pids: ` + strconv.Itoa(attackPIDs) + `}
network:
  mode: ` + string(mode) + `
  dns: [` + o.host + `]` + allow + `
gateway:
  anthropic: {base_url: "` + o.modelURL + `"}
secrets:
  ANTHROPIC_API_KEY: env://MODEL
  SETUP_ONLY: {from: env://SETUP, for: setup}
lifecycle:
  setup:
    - test -n "$SETUP_ONLY"
    - cp attack config.json /tmp/ && chmod 755 /tmp/attack && (setsid /tmp/attack race </dev/null >/dev/null 2>&1 &)
harness:
  name: command
  command: exec /tmp/attack all /tmp/config.json
validate:
  traps: /tmp/attack traps /tmp/config.json
timeout_minutes: 20
`)}, a.flags...)...)
	knocked := done()
	r := u.plainResult(c.task(t))
	rows := attackRows(t, filepath.Join(u.state, r.TaskID, workorder.LogsDir, "agent.stdout.log"))
	if len(r.Validation) == 1 {
		rows = append(rows, attackRows(t, filepath.Join(u.state, r.TaskID, r.Validation[0].Log))...)
	}
	judgeRows(t, rows, a.listed(t, raw), o.arrived())
	rows = append(rows, hostRows(t, u, r, c, o, srv, canary, knocked)...)
	if c.code != 0 || r.Status != workorder.StatusSuccess {
		t.Errorf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
	}
	saveTable(t, a.isolation+", "+string(mode), rows)
	for _, row := range rows {
		if !row.OK {
			t.Errorf("%s: %s: expected %s, got: %s", row.Group, row.Name, row.Expected, row.Got)
		}
	}
}

// listed are the attempts that the attacker has, with what is expected of them.
func (a attackSetup) listed(t *testing.T, config []byte) []attackRow {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{a.program, "list", file}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "list")
	if err := os.WriteFile(list, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return attackRows(t, list)
}

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

func attackRows(t *testing.T, path string) (rows []attackRow) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var r attackRow
		if json.Unmarshal(sc.Bytes(), &r) == nil && r.Name != "" {
			rows = append(rows, r)
		} else {
			t.Logf("the attacker said: %s", sc.Text())
		}
	}
	return rows
}

// judgeRows has the outside's word count more than the attacker's: what must not
// come through must not have arrived, whatever the attacker saw of it.
func judgeRows(t *testing.T, rows, listed []attackRow, arrived map[string]bool) {
	t.Helper()
	tried := map[attackRow]int{}
	for _, r := range rows {
		tried[attackRow{Group: r.Group, Name: r.Name, Expected: r.Expected}]++
	}
	for _, r := range listed {
		if tried[r] != 1 {
			t.Errorf("%s: %s was tried %d times", r.Group, r.Name, tried[r])
		}
		delete(tried, r)
	}
	if len(listed) < 100 || len(tried) != 1 { // the traps are looked at by validation, and are on no list
		t.Errorf("of %d attempts on the list; tried and not on it: %v", len(listed), tried)
	}
	// From inside and outside of containers the token is the same.
	wanted := map[string]bool{}
	for _, r := range rows {
		if r.Expected == "works" {
			wanted[attackToken(r.Name)] = true
		}
	}
	for i := range rows {
		r := &rows[i]
		if token := attackToken(r.Name); strings.HasPrefix(r.Group, "network") && (arrived[token] || arrived["dns:"+token]) && !wanted[token] {
			r.OK, r.Got = false, "it arrived outside; "+r.Got
		}
	}
}

// attackToken is what an attempt carries, see token in e2e/attack.
func attackToken(name string) string {
	if i := strings.LastIndex(name, ": "); i >= 0 && strings.HasPrefix(name, "container") {
		name = name[i+2:]
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
}

// hostRows is what can only be seen from outside of the box.
func hostRows(t *testing.T, u *user, r *workorder.Result, c call, o *outside, srv *gittest.Server, canary, knocked string) []attackRow {
	t.Helper()
	row := func(group, name string, ok bool, got string) attackRow {
		return attackRow{Group: group, Name: name, Expected: "refused", Got: got, Through: !ok, OK: ok}
	}
	rows := []attackRow{row("network", "the outside connects to a port of the agent, all the time", !strings.Contains(knocked, "connected"), knocked)}
	arrived := o.arrived()
	for _, token := range []string{"importurl", "pullregistry"} {
		if r.Network.Mode != workorder.NetworkFull {
			rows = append(rows, row("docker", "the engine reaches the outside for the agent: "+token, !arrived[token], came(arrived[token])))
		}
	}
	rows = append(rows, row("network", "anything asks the outside for a cloud's metadata", !arrived["metadata"], came(arrived["metadata"])))
	leaked := leaks(t, u, c, canary)
	if strings.Contains(gittest.Git(t, filepath.Join(srv.Root, "app.git"), "log", "--all", "-p", "--text"), canary) {
		leaked = "on the remote"
	}
	rows = append(rows, row("secrets", "in everything that leaves the box: output, logs, events, result, branch", leaked == "", "looked for the canary; "+leaked))
	main, err := srv.Repo("app.git").Resolve(t.Context(), "refs/heads/main")
	rows = append(rows, row("git", "the base branch moved", err == nil && main == r.BaseSHA, fmt.Sprintf("main is %.10s, was %.10s %v", main, r.BaseSHA, err)))
	rows = append(rows, row("docker", "the guard's refusals stay out of the result", len(r.Refusals) > 0, fmt.Sprintf("%d rules are in it", len(r.Refusals))))
	if r.Network.Mode != workorder.NetworkFull {
		rows = append(rows, row("network", "refused places stay out of the result", len(r.Network.Hosts) > 0, fmt.Sprintf("%d places are in it", len(r.Network.Hosts))))
	}
	return rows
}

func came(in bool) string {
	if in {
		return "it arrived"
	}
	return "nothing arrived"
}

// leaks says where the canary is in what is left of a run on this machine.
func leaks(t *testing.T, u *user, c call, canary string) string {
	t.Helper()
	if strings.Contains(c.stdout+c.stderr, canary) {
		return "on the screen"
	}
	var where string
	err := filepath.WalkDir(u.state, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		if strings.Contains(string(b), canary) {
			where = p
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return where
}

// saveTable appends the rows to the file that was asked for, as e2e/attack reads them for its table.
func saveTable(t *testing.T, box string, rows []attackRow) {
	t.Helper()
	path := os.Getenv(attackTable)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	enc := json.NewEncoder(f)
	for _, r := range rows {
		if err = enc.Encode(struct {
			Box string `json:"box"`
			attackRow
		}{box, r}); err != nil {
			break
		}
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
