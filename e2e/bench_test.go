//go:build e2e && bench

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// rounds of every measurement. The kinds are interleaved, so that a machine
// that gets slower meanwhile slows all of them.
const rounds = 7

// TestBench prints what a run costs beside the floor that no program can
// undercut, measured in the same minutes. It asserts nothing about time.
func TestBench(t *testing.T) {
	b := &bench{u: newUser(t), samples: map[string][]time.Duration{}}
	b.t = t
	b.repo = b.u.repo(map[string]string{"a": "1"})
	b.plain = b.u.project("name: bench\nharness: {name: command, command: \"true\"}\n")
	b.stack = b.u.project("name: bench\nservices:\n  redis: {image: " + redisImage + "}\n  postgres: {image: " + postgresImage + "}\nharness: {name: command, command: \"true\"}\n")
	// The first runs make the image and warm the layer cache.
	img := b.u.result(b.create("", b.plain).TaskID).Image.Name
	b.create("", b.stack)
	for range rounds {
		b.floor(img)
		b.help()
		b.create("plain", b.plain)
		b.create("stack", b.stack)
	}
	for range rounds {
		b.stop("obedient", "exec sleep 600")
		b.stop("deaf", deaf)
	}
	b.idle()
	b.t.Run("network "+"full", func(t *testing.T) { b.network(t, "full") })             // its servers end with it
	b.t.Run("network "+"restricted", func(t *testing.T) { b.network(t, "restricted") }) // its servers end with it
	b.print()
}

// samples are how long things took, by name.
type samples map[string][]time.Duration

// timed adds how long f takes.
func (s samples) timed(t *testing.T, name string, f func() error) {
	t.Helper()
	start := time.Now()
	if err := f(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	s[name] = append(s[name], time.Since(start))
}

type bench struct {
	t                  *testing.T
	u                  *user
	repo, plain, stack string
	samples            map[string][]time.Duration

	memory []string
}

func (b *bench) add(name string, d time.Duration) {
	if name != "" {
		b.samples[name] = append(b.samples[name], d)
	}
}

func (b *bench) timed(argv ...string) time.Duration {
	b.t.Helper()
	start := time.Now()
	if _, err := proc.Output(b.t.Context(), proc.Spec{Argv: argv}); err != nil {
		b.t.Fatal(err)
	}
	return time.Since(start)
}

func (b *bench) floor(img string) {
	b.add("F", b.timed("docker", "run", "--rm", "--entrypoint", "true", img))
}

func (b *bench) help() { b.add("help", b.timed(bin, "--help")) }

// create runs a whole task and notes when the agent's first event arrived.
func (b *bench) create(name, project string) *workorder.Result {
	b.t.Helper()
	first := &firstEvent{start: time.Now()}
	err := proc.Run(b.t.Context(), proc.Spec{
		Argv: []string{bin, "create", "--json", "--project", project, "--repo", b.repo, "--task", "nothing"},
		Env:  b.u.env, Stdout: first, Stderr: os.Stderr,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	total := time.Since(first.start)
	if first.at == 0 || first.result == nil {
		b.t.Fatalf("no event of the agent, or no result")
	}
	if name == "" {
		return first.result
	}
	b.add(name+" first event", first.at)
	b.add(name+" create", total)
	for _, s := range first.result.Steps {
		b.add(name+" step "+string(s.Name), time.Duration(s.DurationMS)*time.Millisecond)
	}
	var services time.Duration
	for _, s := range first.result.Services {
		services = max(services, time.Duration(s.ReadyMS)*time.Millisecond)
	}
	b.add(name+" services ready", services)
	b.add(name+" D", time.Duration(first.result.Platform.InnerReadyMS)*time.Millisecond)
	return first.result
}

type firstEvent struct {
	start  time.Time
	at     time.Duration
	rest   []byte
	result *workorder.Result
}

func (f *firstEvent) Write(p []byte) (int, error) {
	f.rest = append(f.rest, p...)
	for {
		line, rest, ok := bytes.Cut(f.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		f.rest = rest
		e, err := workorder.DecodeEvent(line)
		switch {
		case err != nil:
		case e.Type == workorder.EventAgentStarted && f.at == 0:
			f.at = time.Since(f.start)
		case e.Type == workorder.EventResult:
			f.result = e.Result
		}
	}
}

// stop measures the way from SIGTERM to the agent's work on the remote, all of
// it on the branch: a commit and a file that is not committed.
func (b *bench) stop(name, rest string) {
	b.t.Helper()
	repo := b.u.repo(map[string]string{"a": "1"})
	s := b.u.start("", "create", "--task", "x", "--repo", repo, "-p", b.u.project(scripted("", busy+rest)))
	s.waitFor("agent-is-busy")
	id := (call{stdout: s.out.String(), stderr: s.errOut.String()}).task(b.t)
	boxes := ours(b.t, id)
	if len(boxes) != 1 {
		b.t.Fatalf("%d boxes", len(boxes))
	}
	start := time.Now()
	if err := eng.ContainerKill(b.t.Context(), boxes[0].ID, "TERM"); err != nil {
		b.t.Fatal(err)
	}
	for {
		out, err := proc.Output(b.t.Context(), proc.Spec{Argv: []string{"git", "-C", repo, "for-each-ref", "--format=%(refname)", "refs/heads/agent/"}})
		if ref := strings.TrimSpace(string(out)); err == nil && ref != "" &&
			proc.Run(b.t.Context(), proc.Spec{Argv: []string{"git", "-C", repo, "cat-file", "-e", ref + ":uncommitted"}}) == nil {
			break
		}
		select {
		case <-s.Done():
			b.t.Fatal("the run ended without its work on the remote")
		case <-time.After(5 * time.Millisecond):
		}
	}
	b.add("stop "+name, time.Since(start))
	s.wait()
}

// idle reads the memory of the guest's processes while the agent does nothing.
func (b *bench) idle() {
	project := b.u.project("name: idle\nharness: {name: command, command: \"echo waiting; sleep 60\"}\n")
	s := b.u.start("", "create", "--project", project, "--repo", b.repo, "--task", "idle")
	s.waitFor("waiting")
	time.Sleep(time.Second)
	matches, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range matches {
		cmdline, err := os.ReadFile(m)
		argv := strings.Split(string(cmdline), "\x00")
		if err != nil || len(argv) < 2 || !strings.HasSuffix(argv[0], "entrypoint") {
			continue
		}
		if kib := rss(filepath.Dir(m)); kib > 0 {
			b.memory = append(b.memory, fmt.Sprintf("entrypoint %s: %.1f MiB resident", argv[1], float64(kib)/1024))
		}
	}
	id := (call{stdout: s.out.String()}).task(b.t)
	b.u.run("", "stop", id)
	s.wait()
}

// network measures requests of the agent to a server on this machine, with nothing
// between them (full) and with the proxy (restricted).
func (b *bench) network(t *testing.T, mode string) {
	t.Helper()
	o := newOutside(t, "bench", hostAddress(t))
	program := buildAttack(t)
	exe, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	allow := ""
	if mode == "restricted" {
		allow = ", allow: [allowed.test@private, '" + strings.TrimPrefix(o.modelURL, "http://") + "']"
	}
	u := newUser(t, "MODEL=bench-key-0123456789")
	repo := u.repo(map[string]string{"attack": string(exe), "config.json": `{"mode":"` + mode + `","host":"` + o.host + `","model_url":"` + o.modelURL + `"}`})
	c := u.run("", "create", "--repo", repo, "--task", "measure", "-p", u.project(`
name: bench
network: {mode: `+mode+`, dns: [`+o.host+`]`+allow+`}
gateway: {anthropic: {base_url: "`+o.modelURL+`"}}
secrets: {ANTHROPIC_API_KEY: env://MODEL}
harness: {name: command, command: "chmod +x attack; exec ./attack measure config.json"}
`))
	r := u.result(c.task(t))
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(resultPath(t, u, r.TaskID)), workorder.LogsDir, "agent.stdout.log"))
	if err != nil {
		t.Fatal(err)
	}
	var samples map[string][]int64
	if err := json.Unmarshal(raw, &samples); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	for name, all := range samples {
		for _, us := range all {
			b.samples["network "+mode+": "+name] = append(b.samples["network "+mode+": "+name], time.Duration(us)*time.Microsecond)
		}
	}
}

func rss(dir string) int {
	f, err := os.Open(dir + "/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(v)[0])
			if err == nil {
				return n
			}
		}
	}
	return 0
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func (b *bench) print() {
	m := func(name string) time.Duration { return median(b.samples[name]) }
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	floor := m("F")
	fmt.Fprintf(w, "what (median of %d)\tms\tmin\tmax\t× F\taim\n", rounds)
	line := func(label, name, aim string, met bool) {
		all := slices.Sorted(slices.Values(b.samples[name]))
		if len(all) == 0 {
			return
		}
		if aim != "" {
			aim += map[bool]string{true: " met", false: " MISSED"}[met]
		}
		mid := median(all)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\t%s\n", label, ms(mid), ms(all[0]), ms(all[len(all)-1]), float64(mid)/float64(floor), aim)
	}
	row := func(label, name string) { line(label, name, "", true) }
	floors := func(label, name string, most float64) {
		line(label, name, fmt.Sprintf("≤ %.1f F", most), float64(m(name)) <= most*float64(floor))
	}
	within := func(label, name string, most time.Duration) {
		line(label, name, "≤ "+ms(most)+" ms", m(name) <= most)
	}
	row("F: docker run --rm IMAGE true", "F")
	floors("no services: command to the agent's first event", "plain first event", 1.6)
	floors("no services: whole create", "plain create", 3)
	row("D: inner daemon alone, fork to ready", "stack D")
	row("S: redis and postgres, create to ready", "stack services ready")
	floors("redis and postgres: command to the agent's first event", "stack first event", 4)
	row("redis and postgres: whole create", "stack create")
	within("SIGTERM to all work on the branch, obedient agent", "stop obedient", 3*time.Second)
	within("SIGTERM to all work on the branch, deaf agent", "stop deaf", 3*time.Second)
	within("sandbox-agent --help", "help", 50*time.Millisecond)
	for _, name := range []string{"plain", "stack"} {
		for _, st := range []string{"box", "docker", "clone", "services", "agent", "push"} {
			row(name+": step "+st, name+" step "+st)
		}
	}
	_ = w.Flush()
	b.printNetwork()
	for _, line := range b.memory {
		fmt.Println(line + " (target 40 MiB)")
	}
}

// printNetwork prints what the proxy and the gateway add to a request.
func (b *bench) printNetwork() {
	const target = 2 * time.Millisecond // what a request may cost more, in the median
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "a request of the agent to this machine (median)\tms\twithout\tadded\ttarget added\t\n")
	row := func(label, with, without string) {
		a, f := median(b.samples[with]), median(b.samples[without])
		ms := func(d time.Duration) string { return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 2, 64) }
		verdict := "met"
		if a-f > target {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", label, ms(a), ms(f), ms(a-f), ms(target), verdict)
	}
	for _, kind := range []string{"http, same connection", "http, new connection", "https, new connection"} {
		row("network restricted: "+kind, "network restricted: "+kind, "network full: "+kind)
	}
	row("model gateway", "network full: model, by the gateway", "network full: model, straight to its server")
	_ = w.Flush()
}

// aim is the limit of a row: a multiple of its floor and a time; 0 is no limit.
type aim struct {
	times float64
	most  time.Duration
}

// of returns the aim, and whether a measured time meets it.
func (a aim) of(ours, floor time.Duration) string {
	var limits []string
	met := true
	if a.times > 0 {
		limits = append(limits, fmt.Sprintf("≤ %.2f ×", a.times))
		met = float64(ours) <= a.times*float64(floor)
	}
	if a.most > 0 {
		limits = append(limits, "≤ "+a.most.String())
		met = met && ours <= a.most
	}
	if len(limits) == 0 {
		return ""
	}
	return strings.Join(limits, ", ") + map[bool]string{true: " met", false: " MISSED"}[met]
}
