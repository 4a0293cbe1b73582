package guard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/guard"
)

// daemon is a stand-in for an engine that keeps containers with their binds.
type daemon struct {
	*engine
	mu     sync.Mutex
	n      int
	binds  map[string][]string // sources by id
	starts int
	rm     bool // containers are to be removed at their end
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{binds: map[string][]string{}}
	d.engine = newEngine(t, d.serve)
	return d
}

func (d *daemon) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	part := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	mounts := func(id string) (list []map[string]string) {
		for _, s := range d.binds[id] {
			list = append(list, map[string]string{"Type": "bind", "Source": s, "Destination": "/x"})
		}
		return list
	}
	switch {
	case r.Method == http.MethodPost && part[1] == "create":
		b, _ := io.ReadAll(r.Body)
		source := sourceOf(string(b))
		if _, err := os.Lstat(source); err != nil {
			answer(http.StatusBadRequest, map[string]string{"message": "bind source path does not exist: " + source})
			return
		}
		d.n++
		id := fmt.Sprintf("c%d", d.n)
		d.binds[id] = []string{source}
		answer(http.StatusCreated, map[string]any{"Id": id, "Warnings": []string{"about " + source}})
	case part[1] == "json":
		list := []map[string]any{}
		for id := range d.binds {
			list = append(list, map[string]any{"Id": id, "Mounts": mounts(id)})
		}
		answer(http.StatusOK, list)
	case d.binds[part[1]] == nil:
		answer(http.StatusNotFound, map[string]string{"message": "no such container"})
	case r.Method == http.MethodDelete:
		delete(d.binds, part[1])
		w.WriteHeader(http.StatusNoContent)
	case part[2] == "json":
		answer(http.StatusOK, map[string]any{"Id": part[1], "Mounts": mounts(part[1]), "HostConfig": map[string]bool{"AutoRemove": d.rm}})
	default:
		d.starts++
		w.WriteHeader(http.StatusNoContent)
	}
}

// do sends a request and returns its answer.
func (f *fixture) do(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://docker"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := f.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (f *fixture) create(t *testing.T, source string) string {
	t.Helper()
	code, body := f.do(t, "POST", "/containers/create", `{"Image":"x","HostConfig":{"Mounts":[{"Type":"bind","Source":"`+source+`","Target":"/x"}]}}`)
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(body), &made); err != nil || code != http.StatusCreated {
		t.Fatalf("%d %s %v", code, body, err)
	}
	if want := `"about ` + source + `"`; !strings.Contains(body, want) {
		t.Errorf("answered %s, want %s", body, want)
	}
	return made.ID
}

// sourceOf is what the only bind of a container is to the engine.
func (d *daemon) sourceOf(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.binds[id][0]
}

func (d *daemon) started() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.starts
}

// mountedAt is what is mounted for it.
func (d *daemon) mountedAt(id string) string {
	target, err := os.Readlink(d.sourceOf(id))
	if err != nil {
		return err.Error()
	}
	return target
}

func TestBindLives(t *testing.T) {
	d := newDaemon(t)
	f := newGuard(t, d.path)
	dir := filepath.Join(f.work, "dir")
	must(t, os.Mkdir(dir, 0o755))
	id := f.create(t, dir)
	if got := d.mountedAt(id); got != dir {
		t.Errorf("mounted %s, want %s", got, dir)
	}
	if source := d.sourceOf(id); filepath.Dir(filepath.Dir(source)) == f.work || !strings.Contains(source, "mounts/") {
		t.Errorf("the engine was given %s", source)
	}

	// The client's path is what is shown.
	for _, path := range []string{"/containers/json", "/containers/" + id + "/json", "/v1.41/containers/" + id + "/json"} {
		if _, body := f.do(t, "GET", path, ""); path[1] != 'v' && !strings.Contains(body, `"Source":"`+dir+`"`) || strings.Contains(body, "mounts/") {
			t.Errorf("%s says %s", path, body)
		}
	}

	// A replacement at the start is checked as at the creation.
	must(t, os.Remove(dir))
	must(t, os.Symlink("/etc", dir))
	for _, verb := range []string{"start", "restart"} {
		if code, body := f.do(t, "POST", "/containers/"+id+"/"+verb, ""); code != http.StatusForbidden || !strings.Contains(body, "rule bind:") {
			t.Errorf("%s: %d %s", verb, code, body)
		}
	}
	if d.started() != 0 {
		t.Error("the engine received a start request")
	}
	if got := d.mountedAt(id); got != dir {
		t.Errorf("%s is mounted", got)
	}
	other := filepath.Join(f.work, "other")
	must(t, errors.Join(os.Remove(dir), os.Mkdir(other, 0o755), os.Symlink("other", dir)))
	if code, body := f.do(t, "POST", "/containers/"+id+"/start", ""); code != http.StatusNoContent {
		t.Errorf("start: %d %s", code, body)
	}
	if got := d.mountedAt(id); got != other {
		t.Errorf("%s is mounted, want %s", got, other)
	}
	// The engine itself reports what is missing.
	must(t, os.Remove(dir))
	if code, body := f.do(t, "POST", "/containers/"+id+"/start", ""); code != http.StatusNoContent {
		t.Errorf("start: %d %s", code, body)
	}
	if got := d.mountedAt(id); !strings.Contains(got, "no such file") {
		t.Errorf("%s is mounted", got)
	}

	if code, body := f.do(t, "DELETE", "/containers/"+id, ""); code != http.StatusNoContent {
		t.Errorf("delete: %d %s", code, body)
	}
	eventually(t, "the mount point is gone", func() bool { return f.Points() == 0 && len(f.Mounts()) == 0 })
}

// The client of docker run --rm waits for the removal of a container whose start is refused.
func TestRefusedStartRemoves(t *testing.T) {
	d := newDaemon(t)
	d.rm = true
	f := newGuard(t, d.path)
	dir := filepath.Join(f.work, "dir")
	must(t, os.Mkdir(dir, 0o755))
	id := f.create(t, dir)
	must(t, errors.Join(os.Remove(dir), os.Symlink("/etc", dir)))
	if code, body := f.do(t, "POST", "/containers/"+id+"/restart", ""); code != http.StatusForbidden {
		t.Errorf("%d %s", code, body)
	}
	if code, body := f.do(t, "GET", "/containers/"+id+"/json", ""); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	if code, body := f.do(t, "POST", "/containers/"+id+"/start", ""); code != http.StatusForbidden {
		t.Errorf("%d %s", code, body)
	}
	if code, body := f.do(t, "GET", "/containers/"+id+"/json", ""); code != http.StatusNotFound {
		t.Errorf("%d %s", code, body)
	}
	eventually(t, "nothing is left of it", func() bool { return f.Points() == 0 })
}

func TestMissingSource(t *testing.T) {
	d := newDaemon(t)
	f := newGuard(t, d.path)
	missing := filepath.Join(f.work, "missing")
	code, body := f.do(t, "POST", "/containers/create", `{"Image":"x","HostConfig":{"Mounts":[{"Type":"bind","Source":"`+missing+`","Target":"/x"}]}}`)
	if code != http.StatusBadRequest || !strings.Contains(body, "does not exist: "+missing+`"`) {
		t.Errorf("%d %s", code, body)
	}
	eventually(t, "nothing is left of it", func() bool { return f.Points() == 0 })
}

// Containers that the engine removes by itself are noticed with the next creation, and those that another
// container still has stays.
func TestPointsAreInUse(t *testing.T) {
	d := newDaemon(t)
	f := newGuard(t, d.path)
	first := f.create(t, f.work)
	d.mu.Lock()
	d.binds["heir"] = d.binds[first] // --volumes-from
	delete(d.binds, first)
	d.mu.Unlock()
	for range 200 {
		id := f.create(t, f.work)
		d.mu.Lock()
		delete(d.binds, id) // --rm
		d.mu.Unlock()
	}
	f.do(t, "POST", "/containers/prune", "")
	eventually(t, "only the heir's is left", func() bool { return f.Points() == 1 && len(f.Mounts()) == 1 })
	if got := d.mountedAt("heir"); got != f.work {
		t.Errorf("%s is mounted", got)
	}
	f.Close()
	if left := f.Mounts(); f.Points() != 0 || len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// A refused creation leaves no mount point of the binds that were good.
func TestRefusedLeavesNothing(t *testing.T) {
	e := newEngine(t, nil)
	f := newGuard(t, e.path)
	must(t, os.Mkdir(filepath.Join(f.work, "a"), 0o755))
	must(t, os.WriteFile(filepath.Join(f.work, "a", "file"), nil, 0o600))
	for _, bad := range []string{"/etc", f.work + "/a/file/below"} {
		if code, body := f.do(t, "POST", "/containers/create", `{"HostConfig":{"Binds":["`+f.work+`:/a","`+bad+`:/b"]}}`); code != http.StatusForbidden {
			t.Errorf("%d %s", code, body)
		}
	}
	if f.Points() != 0 || len(f.Mounts()) != 0 || e.dials.Load() != 0 {
		t.Errorf("%d points, %q, %d connections", f.Points(), f.Mounts(), e.dials.Load())
	}
}

func TestShown(t *testing.T) {
	mounts := filepath.Join(t.TempDir(), "mounts")
	work := t.TempDir()
	g := guard.New(guard.Config{Binds: []string{work}, Mounts: mounts, GID: os.Getgid(), Log: slog.New(slog.DiscardHandler)}).Unprivileged(nil)
	odd := work + `/a "quoted\" <b>`
	must(t, os.Chmod(work, 0o755)) // readable by all, like the workspace
	must(t, os.Mkdir(odd, 0o755))
	quoted, err := json.Marshal(odd)
	must(t, err)
	out, err := g.Create([]byte(`{"HostConfig":{"Mounts":[{"Type":"bind","Source":` + string(quoted) + `,"Target":"/x"}]}}`))
	must(t, err)
	source := sourceOf(string(out))
	inJSON := strings.ReplaceAll(strings.ReplaceAll(odd, `\`, `\\`), `"`, `\"`)
	unknown := mounts + "/" + strings.Repeat("0", 32)
	for in, want := range map[string]string{
		"":           "",
		"x":          "x",
		source:       inJSON,
		source + "x": inJSON + "x",
		`{"Source":"` + source + `","m":["` + source + source + `"]}`: `{"Source":"` + inJSON + `","m":["` + inJSON + inJSON + `"]}`,
		source[:len(source)-1]:            source[:len(source)-1],
		unknown + source:                  unknown + inJSON,
		mounts + "/" + mounts:             mounts + "/" + mounts,
		mounts + mounts + source:          mounts + mounts + inJSON,
		strings.Repeat(source+", ", 3000): strings.Repeat(inJSON+", ", 3000),
		strings.Repeat(".", 32<<10-7) + source + strings.Repeat("/", 70<<10): strings.Repeat(".", 32<<10-7) + inJSON + strings.Repeat("/", 70<<10),
	} {
		for name, r := range map[string]io.Reader{
			"at once": strings.NewReader(in), "by bytes": iotest.OneByteReader(strings.NewReader(in)), "halves": iotest.HalfReader(strings.NewReader(in)),
		} {
			got, err := io.ReadAll(g.Shown(r))
			if err != nil || string(got) != want {
				t.Errorf("%s: %.200q gives %.200q, %v; want %.200q", name, in, got, err, want)
			}
		}
	}
	broken := errors.New("broken")
	if got, err := io.ReadAll(g.Shown(io.MultiReader(strings.NewReader(source+mounts), iotest.ErrReader(broken)))); !errors.Is(err, broken) || !strings.HasPrefix(string(got), inJSON) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestOpenBelow(t *testing.T) {
	root := t.TempDir()
	must(t, os.Chmod(root, 0o755)) // readable by all, like the workspace
	must(t, os.MkdirAll(filepath.Join(root, "dir", "deep"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	must(t, syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	must(t, os.Symlink("dir", filepath.Join(root, "link")))
	for _, rel := range []string{"", "/dir", "/dir/deep", "/file", "/fifo"} {
		if got, err := guard.OpenBelow(root, root+rel, os.Getgid()); err != nil || got != root+rel {
			t.Errorf("%s: %s %v", rel, got, err)
		}
	}
	for rel, want := range map[string]error{"/link": syscall.ELOOP, "/link/deep": syscall.ENOTDIR, "/none": os.ErrNotExist, "/file/x": syscall.ENOTDIR} {
		if got, err := guard.OpenBelow(root, root+rel, os.Getgid()); !errors.Is(err, want) {
			t.Errorf("%s: %s %v, want %v", rel, got, err, want)
		}
	}
}

// However often a folder on the way becomes a link, what is opened is never behind it.
func TestOpenBelowRace(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	must(t, os.Chmod(root, 0o755)) // readable by all, like the workspace
	must(t, os.MkdirAll(filepath.Join(outside, "deep"), 0o755))
	at := filepath.Join(root, "at")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.MkdirAll(filepath.Join(at, "deep"), 0o755)
			_ = os.RemoveAll(at)
			_ = os.Symlink(outside, at)
			_ = os.Remove(at)
		}
	}()
	for range 20000 {
		for _, p := range []string{at, at + "/deep"} {
			if got, err := guard.OpenBelow(root, p, os.Getgid()); err == nil && !strings.HasPrefix(got, root+"/") {
				t.Fatalf("opened %s", got)
			}
		}
	}
	close(stop)
	<-done
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
