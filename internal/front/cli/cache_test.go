package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// boxImage is the only image there is.
type boxImage struct{ app.Images }

func (boxImage) Ensure(context.Context, string, []string, func(workorder.Event)) (workorder.Image, error) {
	return workorder.Image{Name: "box"}, nil
}

// cacheApp is the command line on an engine whose boxes answer with rep, or with the error text.
func cacheApp(t *testing.T, rep *workorder.CacheReport, text string) (a *cmdutil.Factory, out, errs *bytes.Buffer, asked *workorder.CacheRequest) {
	t.Helper()
	asked = &workorder.CacheRequest{}
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"box": func(b *runtimetest.Box) int {
		line, err := bufio.NewReader(b.Stdin).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, asked)
		}
		if err != nil {
			t.Error(err)
		}
		l := workorder.CacheLine{Event: workorder.Event{Seq: 1, Type: workorder.EventCacheReport, Status: "ok"}, Report: rep}
		if text != "" {
			l.Status, l.Text = "error", text
		}
		_ = json.NewEncoder(b.Stdout).Encode(l)
		return 0
	}})
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	dir := t.TempDir()
	return cmdutil.New(cmdutil.IO{Stdin: strings.NewReader("archive"), Stdout: out, Stderr: errs}, app.Env{Getenv: func(k string) string { return map[string]string{"SANDBOX_AGENT_STATE_DIR": dir}[k] }, OpenEngine: func() (*app.Backend, error) { return &app.Backend{Engine: fake, Images: boxImage{}}, nil }}), out, errs, asked
}

func TestCacheLs(t *testing.T) {
	t.Parallel()
	now := time.Now()
	rep := &workorder.CacheReport{DiskBytes: 2_500_000_000, Stores: []workorder.CacheStore{{
		Name: "overlay2-1.2", Layers: 3, SeedBytes: 2_400_000_000, Boxes: []string{"T-A1B2C3D4"},
		Images: []workorder.CacheImage{
			{ID: "sha256:0123456789abcdef", Names: []string{"redis:7", "redis@sha256:ff"}, OwnBytes: 1500, SharedBytes: 7_000_000, UsedAt: now.Add(-72 * time.Hour), PublishedAt: now, Boxes: []string{"T-A1B2C3D4"}},
			{ID: "sha256:aa", Names: []string{}, Problem: "its layer x is \x1b[31mmissing"},
		},
	}}}
	a, out, _, _ := cacheApp(t, rep, "")
	if code := Main(t.Context(), a, []string{"cache", "ls"}); code != 0 {
		t.Fatal(code)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"redis:7 0123456789ab 2 kB 7 MB 3d ago 0s ago 1", " aa", "its layer x is", "overlay2-1.2: 2 images, 3 layers; 2.4 GB", "T-A1B2C3D4", "2.5 GB",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("a terminal would obey this")
	}
	a, out, _, _ = cacheApp(t, rep, "")
	if code := Main(t.Context(), a, []string{"cache", "ls", "--json"}); code != 0 {
		t.Fatal(code)
	}
	var back workorder.CacheReport
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.DiskBytes != rep.DiskBytes {
		t.Errorf("%v: %s", err, out)
	}
	a, out, _, _ = cacheApp(t, &workorder.CacheReport{}, "")
	if code := Main(t.Context(), a, []string{"cache", "ls"}); code != 0 || out.Len() == 0 {
		t.Errorf("exit %d, %s", code, out)
	}
}

func TestCachePrune(t *testing.T) {
	t.Parallel()
	rep := &workorder.CacheReport{FreedBytes: 9_000_000, Stores: []workorder.CacheStore{{Name: "overlay2-1.2", RemovedLayers: 2, Leftovers: 1, Removed: []workorder.CacheImage{{Names: []string{"redis:7"}, OwnBytes: 8_000_000}}}}}
	told := map[string]string{}
	for args, want := range map[string]float64{
		"": 30 * 86400, "--older-than 12h": 43200, "--older-than 1.5d": 129600, "--all": 0, "--all --dry-run": 0,
	} {
		a, out, errs, asked := cacheApp(t, rep, "")
		if code := Main(t.Context(), a, append([]string{"cache", "prune"}, strings.Fields(args)...)); code != 0 {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
		dry := strings.Contains(args, "dry")
		if asked.OlderThanSeconds != want || asked.DryRun != dry {
			t.Errorf("%q asked for %+v", args, asked)
		}
		if !strings.Contains(out.String(), " redis:7 (8 MB") || !strings.Contains(out.String(), " 9 MB") {
			t.Errorf("%q: %s", args, out)
		}
		told[args] = out.String()
	}
	if told["--all"] == told["--all --dry-run"] {
		t.Errorf("a rehearsal tells what it did: %s", told["--all"])
	}
	for _, args := range []string{"--older-than soon", "--older-than -3d", "--older-than 1e300d", "--older-than NaNd", "--all --older-than 3d", "extra"} {
		a, _, errs, _ := cacheApp(t, rep, "")
		if code := Main(t.Context(), a, append([]string{"cache", "prune"}, strings.Fields(args)...)); code != workorder.ExitUsage {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
}

func TestCachePullOfAProject(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.yaml")
	err := os.WriteFile(file, []byte("name: p\nservices:\n  a:\n    image: redis:7\n  b:\n    image: redis:7\n  c:\n    image: postgres:17\nharness:\n  name: command\n  command: x\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	a, out, errs, asked := cacheApp(t, &workorder.CacheReport{Brought: []string{"redis:7"}, NewLayers: 4}, "image postgres:17: cannot be pulled")
	code := Main(t.Context(), a, []string{"cache", "pull", "-p", file, "mysql:8"})
	if code != workorder.ExitBox || strings.Join(asked.Images, " ") != "mysql:8 postgres:17 redis:7" || out.String() != "redis:7\n" || !strings.Contains(errs.String(), "postgres:17: cannot be pulled\nhint: ") {
		t.Errorf("exit %d, asked %v, %s%s", code, asked.Images, out, errs)
	}
	a, _, errs, _ = cacheApp(t, nil, "archive/tar: invalid tar header")
	if code := Main(t.Context(), a, []string{"cache", "load", "-"}); code != workorder.ExitInvalid || !strings.Contains(errs.String(), "archive/tar") || !strings.Contains(errs.String(), "docker save") {
		t.Errorf("exit %d, %s", code, errs)
	}
	a, _, errs, _ = cacheApp(t, nil, "")
	if code := Main(t.Context(), a, []string{"cache", "load"}); code != workorder.ExitUsage || !strings.Contains(errs.String(), "hint: ") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// specs notes the boxes that an engine is asked for.
type specs struct {
	runtime.Runtime
	seen []runtime.ContainerSpec
}

func (s *specs) Run(ctx context.Context, spec runtime.ContainerSpec, stdin io.Reader) (string, error) {
	s.seen = append(s.seen, spec)
	return s.Runtime.Run(ctx, spec, stdin)
}

// TestCacheVolume: runs and the commands of the cache use one volume, which the environment can name.
func TestCacheVolume(t *testing.T) {
	t.Parallel()
	for _, named := range []string{"", "mine"} {
		a, _, errs, _ := cacheApp(t, &workorder.CacheReport{}, "")
		be, err := a.OpenEngine()
		if err != nil {
			t.Fatal(err)
		}
		e := &specs{Runtime: be.Engine}
		env := a.Getenv
		a.Getenv = func(k string) string {
			if k == "SANDBOX_AGENT_CACHE_VOLUME" {
				return named
			}
			return env(k)
		}
		a.OpenEngine = func() (*app.Backend, error) { return &app.Backend{Engine: e, Images: boxImage{}}, nil }
		if code := Main(t.Context(), a, []string{"cache", "ls"}); code != 0 {
			t.Fatal(code, errs)
		}
		// How the run ends is not the point: the box of this engine knows nothing of tasks.
		bare := gittest.New(t, "").Create(t, "r.git", nil)
		project := filepath.Join(t.TempDir(), "p.yaml")
		if err := os.WriteFile(project, []byte("name: x\nrepo: "+bare+"\nimage: box\nharness: {name: command, command: 'true'}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		Main(t.Context(), a, []string{"create", "--task", "x", "-p", project})
		if len(e.seen) != 2 {
			t.Fatalf("%d boxes: %s", len(e.seen), errs)
		}
		for _, s := range e.seen {
			if want := cmp.Or(named, runtime.CacheVolume); s.CacheVolume != want {
				t.Errorf("%s has the volume %q, want %q", s.Name, s.CacheVolume, want)
			}
		}
	}
}

// movedImages is an engine's images for an export: one image, which saving gives as a tar without entries.
type movedImages struct {
	boxImage
	id string
}

func (m movedImages) Lineage(_ context.Context, id string) ([]workorder.Image, error) {
	if id != m.id {
		return nil, nil
	}
	return []workorder.Image{{ID: id, Name: "box:1"}}, nil
}

func (movedImages) Save(context.Context, []string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(make([]byte, 1024))), nil
}
func (m movedImages) Find(context.Context, string) (string, error) { return m.id, nil }
func (movedImages) Outdated(context.Context, string) (bool, error) { return false, nil }

// moveApp is a command line on an engine with one image, whose cache has these snapshots.
func moveApp(t *testing.T, rep *workorder.CacheReport) (a *cmdutil.Factory, out, errs *bytes.Buffer) {
	t.Helper()
	a, out, errs, _ = cacheApp(t, rep, "")
	be, err := a.OpenEngine()
	if err != nil {
		t.Fatal(err)
	}
	a.OpenEngine = func() (*app.Backend, error) {
		return &app.Backend{Engine: be.Engine, Images: movedImages{id: "sha256:1"}}, nil
	}
	return a, out, errs
}

func TestCacheExportAndImport(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "setup.tar.gz")
	one := workorder.CacheSnapshot{ID: "aaaaaaaaaaaa", Project: "https://example.org/p", Image: "sha256:1"}
	old := workorder.CacheSnapshot{ID: "bbbbbbbbbbbb", Project: "https://example.org/q", Image: "sha256:2"}
	for name, row := range map[string]struct {
		args string
		have []workorder.CacheSnapshot
		code int
	}{
		"empty":                  {"export " + file, nil, workorder.ExitNotFound},
		"another repository":     {"export " + file + " --repo https://example.org/x", []workorder.CacheSnapshot{one}, workorder.ExitNotFound},
		"an image without name":  {"export " + file, []workorder.CacheSnapshot{old}, workorder.ExitNotFound},
		"JSON in the archive":    {"export - --json", []workorder.CacheSnapshot{one}, workorder.ExitUsage},
		"project and repository": {"export " + file + " -p x --repo https://example.org/p", nil, workorder.ExitUsage},
		"no such project":        {"export " + file + " -p none", nil, workorder.ExitNoProject},
		"no such directory":      {"export " + file + "/x", []workorder.CacheSnapshot{one}, workorder.ExitUsage},
		"no archive":             {"import -", nil, workorder.ExitInvalid},
		"no such archive":        {"import " + file, nil, workorder.ExitUsage},
	} {
		a, _, errs := moveApp(t, &workorder.CacheReport{Snapshots: row.have})
		if code := Main(t.Context(), a, append([]string{"cache"}, strings.Fields(row.args)...)); code != row.code {
			t.Errorf("%s: exit %d, want %d, %s", name, code, row.code, errs)
		}
		if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) > 0 {
			t.Fatalf("%s: left %v, %v", name, left, err)
		}
	}
}
