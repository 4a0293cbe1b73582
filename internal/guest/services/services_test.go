package services

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/nat"
	"github.com/google/go-cmp/cmp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestHostsText(t *testing.T) {
	names := map[string]netip.Addr{"redis": netip.MustParseAddr("10.1.0.2"), "db": netip.MustParseAddr("10.1.0.3")}
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte("127.0.0.1\tlocalhost\n172.17.0.2 box"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "127.0.0.1\tlocalhost\n172.17.0.2 box\n10.1.0.3\tdb # sandbox-agent service\n10.1.0.2\tredis # sandbox-agent service\n"
	for range 2 { // the second time replaces the first
		if err := WriteHosts(path, names); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Fatal(diff)
		}
	}
	if err := WriteHosts(path, nil); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "127.0.0.1\tlocalhost\n172.17.0.2 box\n" {
		t.Fatalf("%q %v", got, err)
	}
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Fatal("the file was replaced, which a mounted file cannot be")
	}
}

func TestContainerOf(t *testing.T) {
	conf, host, err := containerOf(workorder.Service{
		Name: "db", Image: "postgres:15", Command: []string{"postgres", "-c", "fsync=off"},
		Env: map[string]string{"B": "2", "A": "1=1"}, Ports: []string{"5432", "8080:53/udp"},
		Volumes:     []string{"data:/var/lib/postgresql:ro"},
		Healthcheck: &workorder.Healthcheck{Test: []string{"pg_isready"}, Retries: 3},
	}, "T-00000000")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A=1=1", "B=2"}, conf.Env); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(nat.PortSet{"5432/tcp": {}, "53/udp": {}}, conf.ExposedPorts); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(nat.PortMap{"53/udp": {{HostIP: "127.0.0.1", HostPort: "8080"}}}, host.PortBindings); diff != "" {
		t.Error(diff)
	}
	want := &container.HealthConfig{Test: []string{"CMD-SHELL", "pg_isready"}, Interval: time.Second, Timeout: 10 * time.Second, Retries: 3}
	if diff := cmp.Diff(want, conf.Healthcheck); diff != "" {
		t.Error(diff)
	}
	if m := host.Mounts[0]; m.Source != "data" || m.Target != "/var/lib/postgresql" || !m.ReadOnly || len(host.Binds) > 0 {
		t.Errorf("%+v", m)
	}
	for _, bad := range []workorder.Service{
		{Name: "x", Volumes: []string{"/var/run/docker.sock:/var/run/docker.sock"}},
		{Name: "x", Volumes: []string{"data"}},
		{Name: "x", Ports: []string{"http"}},
		{Name: "x", Ports: []string{"70000"}},
		{Name: "x", Ports: []string{"1-9"}},
		{Name: "x", Ports: []string{"0.0.0.0:1:1"}},
		{Name: "x", Ports: []string{"53/udp:53"}},
	} {
		if _, _, err := containerOf(bad, "T-00000000"); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestFirstTCP(t *testing.T) {
	exposing := container.InspectResponse{Config: &container.Config{ExposedPorts: nat.PortSet{"9001/tcp": {}, "9000/tcp": {}, "53/udp": {}}}}
	for _, c := range []struct {
		ports []string
		in    container.InspectResponse
		want  string
	}{
		{[]string{"53/udp", "8080", "9090"}, exposing, "8080"},
		{nil, exposing, "9000"},
		{[]string{"53/udp"}, exposing, ""},
		{nil, container.InspectResponse{}, ""},
	} {
		got, ok := firstTCP(&unit{spec: workorder.Service{Ports: c.ports}}, c.in)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%q: got %q", c.ports, got)
		}
	}
}

func TestHealthArgv(t *testing.T) {
	for _, c := range []struct {
		conf *container.Config
		want []string
	}{
		{nil, nil},
		{&container.Config{}, nil},
		{&container.Config{Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}}, nil},
		{&container.Config{Healthcheck: &container.HealthConfig{Test: []string{"CMD", "a", "b c"}}}, []string{"a", "b c"}},
		{&container.Config{Healthcheck: &container.HealthConfig{Test: []string{"CMD-SHELL", "a || b"}}}, []string{"/bin/sh", "-c", "a || b"}},
		{&container.Config{Shell: []string{"bash", "-ec"}, Healthcheck: &container.HealthConfig{Test: []string{"CMD-SHELL", "a"}}}, []string{"bash", "-ec", "a"}},
	} {
		if diff := cmp.Diff(c.want, healthArgv(c.conf)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestOffered(t *testing.T) {
	i := newImages(Config{HostImages: map[string]string{"redis:7": "", "docker.io/library/postgres:15": ""}})
	for name, want := range map[string]string{
		"redis:7": "redis:7", "docker.io/library/redis:7": "redis:7", "redis": "", "postgres:15": "docker.io/library/postgres:15", "ghcr.io/a/redis:7": "", "Not A Name": "",
	} {
		if got := i.offered(name); got != want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestWaitInbox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.tar")
	if err := os.WriteFile(path+".failed", []byte("no such image\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := waitInbox(t.Context(), path); err == nil || !strings.Contains(err.Error(), "no such image") {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(path+".done", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := waitInbox(t.Context(), path); err != nil {
		t.Fatal(err)
	}
}

func TestMessages(t *testing.T) {
	var got []string
	err := messages(strings.NewReader(`{"status":"Downloading","id":"ab","progressDetail":{"current":2000000,"total":9000000}}
{"status":"Done"}
{"errorDetail":{"message":"unauthorized"},"error":"unauthorized"}`), func(l string) { got = append(got, l) })
	if err == nil || err.Error() != "unauthorized" {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff([]string{"ab: Downloading 2 of 9 MB", "Done"}, got); diff != "" {
		t.Error(diff)
	}
	if err := messages(strings.NewReader(`{"status":"Do`), func(string) {}); err == nil {
		t.Error("a stream that breaks off is no success")
	}
}

func TestUpWithoutServices(t *testing.T) {
	s, err := Up(t.Context(), Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Hosts()) != 0 || len(s.Ends()) != 0 {
		t.Error("nothing should be there")
	}
}

const fakeSupabase = `#!/bin/sh
echo "$@ in $(pwd) as $HOME" >>"$LOG"
case "$3" in
init) mkdir -p supabase && touch supabase/config.toml ;;
start) echo Pulling images; [ -z "$FAIL" ] || { echo "port 54322 is taken" >&2; exit 4; } ;;
status) echo "Stopped services: [x]" >&2; printf 'API_URL="http://127.0.0.1:54321"\nDB_URL="postgresql://postgres:p\\"w@127.0.0.1:54322/postgres"\nANON_KEY="anon"\nSERVICE_ROLE_KEY=role\nnoise here\n' ;;
esac
`

func fakeCLI(t *testing.T, fail string) (SupabaseConfig, *[]workorder.Event) {
	t.Helper()
	bin, scratch, ws, logs := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "supabase"), []byte(fakeSupabase), 0o755); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var events []workorder.Event
	return SupabaseConfig{
		Dir: ws, Scratch: scratch, LogDir: logs, LogRel: "logs",
		Env: []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=/h", "FAIL=" + fail, "LOG=" + filepath.Join(logs, "calls")},
		Emit: func(e workorder.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		},
	}, &events
}

func TestSupabase(t *testing.T) {
	cfg, events := fakeCLI(t, "")
	s, err := UpSupabase(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"SUPABASE_URL": "http://127.0.0.1:54321", "DATABASE_URL": `postgresql://postgres:p"w@127.0.0.1:54322/postgres`,
		"SUPABASE_DB_URL":   `postgresql://postgres:p"w@127.0.0.1:54322/postgres`,
		"SUPABASE_ANON_KEY": "anon", "SUPABASE_SERVICE_ROLE_KEY": "role",
	}
	if diff := cmp.Diff(want, s.Env); diff != "" {
		t.Error(diff)
	}
	if s.End.State != stateReady || (*events)[len(*events)-1].Status != "ready" {
		t.Errorf("%+v", s.End)
	}
	calls, err := os.ReadFile(filepath.Join(cfg.LogDir, "calls"))
	if err != nil || strings.Count(string(calls), "in "+cfg.Scratch) != 3 {
		t.Errorf("%s %v", calls, err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "supabase")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the repository was changed")
	}
	log, err := os.ReadFile(filepath.Join(cfg.LogDir, "service-supabase.log"))
	if err != nil || !strings.Contains(string(log), "Pulling images") {
		t.Errorf("%s %v", log, err)
	}
}

func TestSupabaseUsesTheRepositorysConfiguration(t *testing.T) {
	cfg, _ := fakeCLI(t, "")
	if err := os.Mkdir(filepath.Join(cfg.Dir, "supabase"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.Dir, "supabase", "config.toml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := UpSupabase(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	calls, err := os.ReadFile(filepath.Join(cfg.LogDir, "calls"))
	if err != nil || strings.Contains(string(calls), "init") || !strings.Contains(string(calls), "start in "+cfg.Dir) {
		t.Errorf("%s %v", calls, err)
	}
}

func TestSupabaseFails(t *testing.T) {
	cfg, events := fakeCLI(t, "1")
	s, err := UpSupabase(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "port 54322 is taken") || proc.ExitCode(err) != 4 {
		t.Errorf("%v", err)
	}
	if s.End.State != stateFailed || !strings.Contains(s.End.Tail, "54322") || (*events)[len(*events)-1].Status != "failed" {
		t.Errorf("%+v", s.End)
	}
	cfg.Env = []string{"PATH=/nowhere"}
	if _, err := UpSupabase(t.Context(), cfg); !errors.Is(err, proc.ErrNotFound) || !strings.Contains(err.Error(), "supabase: true") {
		t.Errorf("%v", err)
	}
}

// fakeEngine has one image and knows how to load another.
func fakeEngine(t *testing.T, id string, loaded *bool) *client.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/images/load"):
			*loaded = true
			fmt.Fprint(w, `{"stream":"Loaded image"}`)
		case strings.HasSuffix(r.URL.Path, "/images/redis:7/json"):
			fmt.Fprintf(w, `{"Id":%q}`, id)
		default:
			http.Error(w, `{"message":"no such image"}`, http.StatusNotFound)
		}
	}))
	t.Cleanup(srv.Close)
	cli, err := client.NewClientWithOpts(client.WithHost("tcp://"+srv.Listener.Addr().String()), client.WithVersion("1.45"))
	if err != nil {
		t.Fatal(err)
	}
	return cli
}

func TestEnsurePrefersTheHostsImage(t *testing.T) {
	for _, c := range []struct {
		name string
		ids  map[string]string
		want bool
	}{
		{"same", map[string]string{"redis:7": "sha256:here"}, false},
		{"rebuilt on the host", map[string]string{"redis:7": "sha256:newer"}, true},
		{"the host does not say", map[string]string{"redis:7": ""}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			loaded := false
			cfg := Config{
				Client: fakeEngine(t, "sha256:here", &loaded), Inbox: t.TempDir(), HostImages: c.ids,
				Emit: func(e workorder.Event) {
					for _, f := range []string{e.Path, e.Path + ".done"} {
						if err := os.WriteFile(f, nil, 0o600); err != nil {
							t.Error(err)
						}
					}
				},
			}
			if err := newImages(cfg).ensure(t.Context(), "redis:7", func(string, string) {}); err != nil {
				t.Fatal(err)
			}
			if loaded != c.want {
				t.Errorf("loaded: %v", loaded)
			}
			if left, err := os.ReadDir(cfg.Inbox); err != nil || len(left) != 0 {
				t.Errorf("left in the inbox: %v", left)
			}
		})
	}
}

func TestPullOfWhatIsNowhere(t *testing.T) {
	loaded := false
	err := newImages(Config{Client: fakeEngine(t, "", &loaded)}).ensure(t.Context(), "no/where:1", func(string, string) {})
	if err == nil || !strings.Contains(err.Error(), "no/where:1") || !strings.Contains(err.Error(), "no such image") {
		t.Errorf("%v", err)
	}
}

// A service that ends while the agent works is reported once, with how it ended.
func TestServiceThatIsLost(t *testing.T) {
	var state string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/logs") {
			_, _ = w.Write(append([]byte{2, 0, 0, 0, 0, 0, 0, 9}, "no memory"...))
			return
		}
		_, _ = fmt.Fprintf(w, `{"Id":"1","State":{%s}}`, state)
	}))
	t.Cleanup(srv.Close)
	cli, err := client.NewClientWithOpts(client.WithHost("tcp://"+srv.Listener.Addr().String()), client.WithVersion("1.45"))
	if err != nil {
		t.Fatal(err)
	}
	var lost []string
	u := &unit{spec: workorder.Service{Name: "db"}, id: "1", state: stateReady}
	s := &Stack{cfg: Config{Client: cli, Emit: func(workorder.Event) {}, Lost: func(text string) { lost = append(lost, text) }}, units: []*unit{u}}
	for _, state = range []string{
		`"Status":"running","Running":true`,
		`"Status":"running","Running":true,"Health":{"Status":"unhealthy"}`,
		`"Status":"running","Running":true,"Health":{"Status":"healthy"}`,
		`"Status":"running","Running":true,"Health":{"Status":"unhealthy"}`,
		`"Status":"exited","ExitCode":137`,
		`"Status":"exited","ExitCode":137`,
	} {
		s.recheck(t.Context(), u)
	}
	for i, how := range []string{"unhealthy", "137"} {
		if len(lost) != 2 || !strings.Contains(lost[i], " db ") || !strings.Contains(lost[i], how) {
			t.Fatalf("told %q", lost)
		}
	}
	if end := s.Ends()[0]; end.State != stateExited || end.Tail != "no memory" {
		t.Errorf("end %+v", end)
	}
}

func TestLogIsCleaned(t *testing.T) {
	dir := t.TempDir()
	log, err := newLog(dir, "x.log", redact.Named(map[string]string{"KEY": "s3cr3t-value"}).Writer)
	if err != nil {
		t.Fatal(err)
	}
	_, werr := io.WriteString(log, "the s3cr3t-")
	_, werr2 := io.WriteString(log, "value s3cr")
	if err := errors.Join(werr, werr2, log.Close()); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "x.log")); err != nil || string(b) != "the [redacted:KEY] s3cr" {
		t.Errorf("%q, %v", b, err)
	}
}
