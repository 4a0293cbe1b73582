package launch

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestPlanText(t *testing.T) {
	t.Parallel()
	budget := 2.5
	full := &Job{
		Image: "", Isolation: "confined", LocalRepo: "/home/me/shop",
		Order: workorder.Order{
			TaskID: "T-A1B2C3D4", Project: "shop", Task: "x", Repo: "/home/me/shop", Branch: "main",
			TargetBranch: "agent/T-A1B2C3D4-x", Spec: workorder.Spec{Services: []workorder.Service{{Name: "redis", Image: "redis:7"}}, Supabase: true, Env: map[string]string{"B": "2"}, SecretNames: []string{"A_KEY", "OPENAI_API_KEY", "Z"}, SecretUses: map[string]workorder.SecretUse{"OPENAI_API_KEY": workorder.ForGateway, "Z": workorder.ForSetup}, Gateway: workorder.Gateway{RequestsPerMinute: 5, Routes: []workorder.ModelRoute{
				{API: workorder.APIAnthropic, BaseURL: "http://ollama:11434"}, {API: workorder.APIOpenAI, BaseURL: "https://api.openai.com", Keys: []string{"OPENAI_API_KEY"}},
			}}, Packages: []string{"jq"}, Setup: []string{"make\nmake all"}, Network: workorder.Network{Mode: workorder.NetworkRestricted, Allow: []string{"example.com", "*.example.org"}, Learn: true, DNS: []string{"192.0.2.1"}}, Limits: workorder.Limits{MemoryBytes: 2 << 30, CPUs: 1.5, PIDs: 100}},

			Validate: []workorder.Command{{Name: "test", Run: "go test ./..."}}, Harness: workorder.Harness{Name: "claude-code"},
			MaxBudgetUSD: &budget, TimeoutMinutes: 1.5,
		},
	}
	bare := &Job{
		Image: "mine:1", Isolation: "privileged", OCIRuntime: "kata", OutDir: "/out", Keep: true,
		Order: workorder.Order{TaskID: "T-00000000", Harness: workorder.Harness{Name: "command"}, TimeoutMinutes: 30, Spec: workorder.Spec{Network: workorder.Network{Mode: workorder.NetworkFull}}},
	}
	for name, job := range map[string]*Job{"full": full, "bare": bare} {
		got := PlanText(job)
		file := filepath.Join("testdata", "plan-"+name+".txt")
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestProposals: users copy rules out of a result, so a box cannot smuggle others in.
func TestProposals(t *testing.T) {
	t.Parallel()
	res := &workorder.Result{Network: &workorder.NetworkReport{}}
	want := map[string]string{
		"a.example": "- a.example", "b.example": "- a.example", "c.example": "- '*.c.example'", "d.example": "- d.example:22", "2001:db8::1": `- "[2001:db8::1]:22"`,
		"e.example": "- e.example\n- evil.example", "f.example": "everything",
	}
	for host, rule := range want {
		res.Network.Hosts = append(res.Network.Hosts, workorder.NetworkHost{Host: host, Rule: rule})
	}
	proposals(res)
	for _, h := range res.Network.Hosts {
		kept := slices.Contains([]string{"a.example", "d.example", "2001:db8::1"}, h.Host)
		if kept && h.Rule != want[h.Host] || !kept && h.Rule != "" {
			t.Errorf("%s: %q", h.Host, h.Rule)
		}
	}
	proposals(&workorder.Result{})
}

// TestUnpack: the archive comes from a box that an agent was root in for all we know.
func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(dir, "way-out")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	add := func(h tar.Header, content string) {
		t.Helper()
		h.Size, h.Mode = int64(len(content)), 0o777
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name, content string) { add(tar.Header{Name: name, Typeflag: tar.TypeReg}, content) }
	add(tar.Header{Name: "out/", Typeflag: tar.TypeDir}, "")
	file("out/result.json", "the result")
	file("out/logs/a.log", "log")
	file("out/evidence/deep/x.png", "png")
	file("out/events.jsonl", "no event\n"+`{"seq":2,"type":"warning","text":"lost on the way"}`+"\n")
	file("out/events.jsonl/x", "below a file")
	file("out/workorder.json", "forged")
	file("out/task.json", "forged")
	file("out/attempts/1/result.json", "forged")
	file("out/.hidden", "x")
	file("out/logs/a.log/below-a-file", "x")
	file("out/../../escape", "x")
	file("/out/../escape2", "x")
	add(tar.Header{Name: "out/link", Typeflag: tar.TypeSymlink, Linkname: outside}, "")
	add(tar.Header{Name: "out/hard", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}, "")
	add(tar.Header{Name: "out/dev", Typeflag: tar.TypeBlock}, "")
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := newIntake(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.folder(&b); err != nil || string(in.result) != "the result" {
		t.Errorf("result %q, %v", in.result, err)
	}
	in.Close()
	if len(in.warnings) != 1 || !strings.Contains(in.warnings[0], "2 files") {
		t.Errorf("warnings = %q", in.warnings)
	}
	var got []string
	if err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if rel, rerr := filepath.Rel(dir, p); err == nil && rerr == nil && !d.IsDir() {
			got = append(got, rel)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := "events.jsonl evidence/deep/x.png logs/a.log way-out"; strings.Join(got, " ") != want {
		t.Errorf("unpacked %v, want %s", got, want)
	}
	b.Reset()
	tw = tar.NewWriter(&b)
	file("out/way-out/outside", "x")
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if in, err = newIntake(dir); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := in.folder(&b); err == nil {
		t.Error("wrote through a link that leads out")
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("a file was written outside")
	}
}

// TestUnpackBounds: a box cannot fill the host's folders with names either.
func TestUnpackBounds(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for i := range 4 {
		if err := tw.WriteHeader(&tar.Header{Name: fmt.Sprintf("out/%d", i), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	in, err := newIntake(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	in.entries = 2
	if err := in.folder(&b); err != nil || len(in.warnings) != 1 {
		t.Errorf("%v, warnings %q", err, in.warnings)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%d files, %v", len(left), err)
	}
}

// TestMergeEvents: what the stream lost is in the box's own copy.
func TestMergeEvents(t *testing.T) {
	t.Parallel()
	event := func(seq int, text string) string {
		return fmt.Sprintf(`{"seq":%d,"type":"warning","text":%q}`, seq, text) + "\n"
	}
	long := `{"seq":8,"type":"warning","text":"` + strings.Repeat("x", maxLine) + "\"}\n"
	for name, c := range map[string]struct{ have, box, want string }{
		"a gap and an end": {
			event(1, "a") + event(4, "d"), event(1, "A") + event(2, "B") + event(3, "C") + event(4, "D") + event(5, "E"),
			event(1, "a") + event(2, "B") + event(3, "C") + event(4, "d") + event(5, "E"),
		},
		"no record":      {"", event(1, "A"), event(1, "A")},
		"nothing new":    {event(1, "a"), event(1, "A"), event(1, "a")},
		"fewer than had": {event(1, "a") + event(2, "b"), event(2, "B"), event(1, "a") + event(2, "b")},
		"hostile": {
			event(7, "g"), "junk\n" + event(3, "C") + event(2, "out of order") + event(-1, "no") + long + event(9, "I") + `{"seq":10,`,
			event(3, "C") + event(7, "g") + event(9, "I"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, workorder.EventsFile)
			if err := os.WriteFile(file, []byte(c.have), 0o600); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if err := mergeEvents(root, strings.NewReader(c.box)); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if d := cmp.Diff(c.want, string(got)); err != nil || d != "" {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
			if left, _ := os.ReadDir(dir); len(left) != 1 {
				t.Errorf("%d files are left", len(left))
			}
		})
	}
}

// TestRecorder: a recorder opened on what a killed one left goes on after its
// last whole line.
func TestRecorder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, workorder.EventsFile)
	one, two := `{"seq":1,"time":"2026-01-01T00:00:00Z","type":"ready"}`+"\n", `{"seq":2,"time":"2026-01-01T00:00:01Z","type":"warning","text":"x"}`+"\n"
	if err := os.WriteFile(file, []byte(one+two[:20]), 0o600); err != nil {
		t.Fatal(err)
	}
	var shown []int64
	r, err := openRecorder(dir, func(e workorder.Event) { shown = append(shown, e.Seq) })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{one, "not an event\n", two[:5], two[5:], two, strings.Repeat("x", maxLine+1), "y\n", `{"seq":3,"type":"warning"}` + "\n", `{"seq":4,`} {
		if _, err := r.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := one + two + `{"seq":3,"type":"warning"}` + "\n"; string(got) != want {
		t.Errorf("record is %q", got)
	}
	if len(shown) != 2 || shown[0] != 2 || shown[1] != 3 {
		t.Errorf("shown %v", shown)
	}
}

// TestLongest: the host never ends a run that still keeps the guest's own bounds.
func TestLongest(t *testing.T) {
	t.Parallel()
	o := &workorder.Order{TimeoutMinutes: 3}
	if got := longest(o); got <= startTimeout+3*time.Minute+workorder.AgentGrace+workorder.LandLimit+workorder.BundleGrace || got > 3*time.Minute+2*workorder.LandLimit {
		t.Errorf("stopped after %s", got)
	}
}

func TestDefaultRoute(t *testing.T) {
	t.Parallel()
	const table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
		"docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n" +
		"tun0\t00000000\t010200C0\t0003\t0\t0\t0\t00000080\t0\t0\t0\n" +
		"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	if got := defaultRoute(table); got != "eth0" {
		t.Errorf("default route by %q", got)
	}
	if got := defaultRoute(""); got != "" {
		t.Errorf("no table: %q", got)
	}
}
