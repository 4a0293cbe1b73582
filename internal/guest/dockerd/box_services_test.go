//go:build boxtest

package dockerd_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/layercache"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/services"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func stackConfig(t *testing.T, e *dockerd.Engine, list ...workorder.Service) services.Config {
	dir := t.TempDir()
	return services.Config{
		Client: e.Client(), Services: list, TaskID: "T-BOXTEST0", MTU: e.Info().MTU,
		LogDir: dir, LogRel: "logs", Inbox: filepath.Join(dir, "inbox"),
		Log:  slog.New(slog.NewTextHandler(t.Output(), nil)),
		Lost: func(text string) { t.Log(text) },
		Emit: func(ev workorder.Event) {
			t.Logf("event %s %s %s %dms %s", ev.Type, ev.Name, ev.Status, ev.DurationMS, ev.Text)
		},
	}
}

func TestServices(t *testing.T) {
	e := start(t, boxConfig(t, "services"))
	load(t, e.Client())
	ctx := boxCtx(t)
	begin := time.Now()
	lost := make(chan string, 1)
	cfg := stackConfig(t, e,
		workorder.Service{Name: "redis", Image: redisImage()},
		workorder.Service{Name: "cache", Image: redisImage(), Ports: []string{"6379"}},
		workorder.Service{Name: "checked", Image: redisImage(), Healthcheck: &workorder.Healthcheck{Test: []string{"redis-cli ping"}, IntervalSeconds: 30}},
	)
	cfg.Lost = func(text string) { lost <- text }
	stack, err := services.Up(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up in %s", time.Since(begin).Round(time.Millisecond))
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := services.WriteHosts(hosts, stack.Hosts()); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(hosts)
	t.Logf("%s", b)
	names(t, stack.Hosts())
	// By name from the default bridge and from the services' own network.
	for _, mode := range []container.NetworkMode{"bridge", container.NetworkMode(services.NetworkName("T-BOXTEST0"))} {
		out, code := run(t, e.Client(), &container.HostConfig{NetworkMode: mode}, "redis-cli", "-h", "redis", "ping")
		if code != 0 || !strings.Contains(out, "PONG") {
			t.Errorf("from %s: %d %s", mode, code, out)
		}
	}
	if err := e.Client().ContainerKill(ctx, "cache", "KILL"); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-lost:
		if !strings.Contains(text, " cache ") || !strings.Contains(text, "137") {
			t.Error(text)
		}
	case <-ctx.Done():
		t.Fatal("the death of a service was not noticed")
	}
	for _, end := range stack.Ends() {
		t.Logf("%+v", end)
	}
	stack.Unwatch()
}

func TestServicesThatFail(t *testing.T) {
	e := start(t, boxConfig(t, "failing"))
	load(t, e.Client())
	cfg := stackConfig(t, e,
		workorder.Service{Name: "exits", Image: redisImage(), Command: []string{"sh", "-c", "echo no license; exit 3"}},
		workorder.Service{Name: "sick", Image: redisImage(), Healthcheck: &workorder.Healthcheck{Test: []string{"sh", "-c", "echo very sick; exit 1"}, IntervalSeconds: 0.2, Retries: 3}},
		// Long enough for its container to start beside what else a small machine does: the error is to name the port.
		workorder.Service{Name: "deaf", Image: redisImage(), Ports: []string{"6380"}, StartTimeoutSeconds: 20},
		workorder.Service{Name: "absent", Image: "registry.invalid/nothing/here:1"},
		workorder.Service{Name: "fine", Image: redisImage()},
	)
	stack, err := services.Up(boxCtx(t), cfg)
	if err == nil {
		t.Fatal("no error")
	}
	t.Log(err)
	for _, want := range []string{" exits:", "no license", " 3", " sick:", "very sick", " deaf:", "6380", " absent:", "registry.invalid/nothing/here:1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q", want)
		}
	}
	if strings.Contains(err.Error(), " fine:") {
		t.Error("a good service is blamed")
	}
	b, _ := os.ReadFile(filepath.Join(cfg.LogDir, "service-exits.log"))
	if !strings.Contains(string(b), "no license") {
		t.Errorf("log: %q", b)
	}
	stack.Unwatch()
}

// TestHostImage plays the host: it answers an image request.
func TestHostImage(t *testing.T) {
	e := start(t, boxConfig(t, "hostimage"))
	src := openImage(t)
	src.Close()
	cfg := stackConfig(t, e, workorder.Service{Name: "redis", Image: redisImage()}, workorder.Service{Name: "gone", Image: "gone:1"})
	cfg.HostImages = map[string]string{redisImage(): "", "gone:1": ""}
	emit := cfg.Emit
	cfg.Emit = func(ev workorder.Event) {
		emit(ev)
		if ev.Type != workorder.EventImageRequest {
			return
		}
		go func() {
			if ev.Name == "gone:1" {
				// As the host's copy does: the file has its content when it has its name.
				_ = os.WriteFile(ev.Path+".half", []byte("it was removed\n"), 0o600)
				_ = os.Rename(ev.Path+".half", ev.Path+".failed")
				return
			}
			_ = proc.Run(boxCtx(t), proc.Spec{Argv: []string{"cp", src.Name(), ev.Path}})
			_ = os.WriteFile(ev.Path+".done", nil, 0o600)
		}()
	}
	_, err := services.Up(boxCtx(t), cfg)
	if err == nil || !strings.Contains(err.Error(), "it was removed") || strings.Contains(err.Error(), " redis:") {
		t.Fatalf("%v", err)
	}
}

// TestTwoBoxesOneCache needs a volume of its own on /cache.
func TestTwoBoxesOneCache(t *testing.T) {
	if os.Getenv("BOXTEST_CACHE") == "" {
		t.Skip("BOXTEST_CACHE is not set")
	}
	warm := os.Getenv("BOXTEST_WARM") != ""
	cfg := boxConfig(t, "cached")
	lc := layercache.New(layercache.Config{
		Dir: os.Getenv("BOXTEST_CACHE"), View: "/var/lib/layers", DataRoot: cfg.DataRoot, ID: os.Getenv("BOXTEST_ID"),
		Images: []string{redisImage()}, Log: cfg.Log,
	})
	cfg.DataRootProvider = lc
	e := start(t, cfg)
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || !strings.Contains(string(mounts), " "+cfg.DataRoot+" ") {
		t.Fatalf("the cache is not in use: %v, %q", err, e.Info().Notes)
	}
	ctx := boxCtx(t)
	_, err := e.Client().ImageInspect(ctx, redisImage())
	if warm != (err == nil) {
		t.Fatalf("warm %v, image: %v", warm, err)
	}
	if !warm {
		load(t, e.Client())
	}
	stack, err := services.Up(ctx, stackConfig(t, e, workorder.Service{Name: "redis", Image: redisImage()}))
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	n, err := lc.Publish(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("published %d layers in %s", n, time.Since(begin))
	if (n > 0) == warm {
		t.Errorf("published %d layers", n)
	}
	if err := lc.Seal(); err != nil {
		t.Fatal(err)
	}
	// The box still works on moved and on linked layers, and cannot change them.
	if out, code := run(t, e.Client(), nil, "sh", "-c", "rm /etc/debian_version && echo x >/etc/new && redis-cli --version"); code != 0 {
		t.Fatal(out)
	}
	if out, code := run(t, e.Client(), &container.HostConfig{Binds: []string{"/var/lib/layers:/x"}}, "sh", "-c", "ls /x/overlay2/*; touch /x/y"); code == 0 {
		t.Fatal(out)
	}
	layers, _ := filepath.Glob("/var/lib/layers/overlay2/*/diff")
	if len(layers) == 0 {
		t.Fatal("no layers in view")
	}
	if err := os.WriteFile(filepath.Join(layers[0], "poison"), nil, 0o600); err == nil {
		t.Fatal("the layers can be written to")
	}
	if _, code := run(t, e.Client(), &container.HostConfig{Binds: []string{layers[0] + ":/x"}}, "touch", "/x/poison"); code == 0 {
		t.Fatal("an inner container can write to shared layers")
	}
	if os.Getenv("BOXTEST_HANG") != "" {
		fmt.Println("HANGING")
		select {}
	}
	stack.Unwatch()
}

// TestStopWithDeafServices stops containers that ignore SIGTERM.
func TestStopWithDeafServices(t *testing.T) {
	e := start(t, boxConfig(t, "deaf"))
	load(t, e.Client())
	ctx := boxCtx(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			r, err := e.Client().ContainerCreate(ctx, &container.Config{Image: redisImage(), Cmd: []string{"sleep", "1000"}}, nil, nil, nil, "")
			if err == nil {
				err = e.Client().ContainerStart(ctx, r.ID, container.StartOptions{})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	e.Stop(ctx)
	<-e.Done()
	if e.Err() != nil {
		t.Fatal(e.Err())
	}
	b, err := os.ReadFile("/tmp/logs-deaf/dockerd.log")
	if err != nil || !bytes.Contains(b, []byte("Daemon shutdown complete")) {
		t.Errorf("no orderly end in the log: %v", err)
	}
}

// TestKillNineAndRestart is run twice on one volume: with BOXTEST_HANG the box
// fills the data root and waits for its death; without, it finds what was left.
func TestKillNineAndRestart(t *testing.T) {
	dirty := os.Getenv("BOXTEST_HANG") != ""
	cfg := boxConfig(t, "killed")
	e := start(t, cfg)
	ctx := boxCtx(t)
	all, err := e.Client().ContainerList(ctx, container.ListOptions{All: true})
	if err != nil || len(all) != 0 {
		t.Fatalf("containers of a former life: %v %v", all, err)
	}
	vols, err := e.Client().VolumeList(ctx, volume.ListOptions{})
	if err != nil || len(vols.Volumes) != 0 {
		t.Fatalf("volumes of a former life: %v %v", vols.Volumes, err)
	}
	if _, err := e.Client().ImageInspect(ctx, redisImage()); err != nil {
		if !dirty {
			t.Fatalf("the image did not survive: %v", err)
		}
		load(t, e.Client())
	}
	stack, err := services.Up(ctx, stackConfig(t, e, workorder.Service{Name: "redis", Image: redisImage(), Volumes: []string{"data:/var/lib/redis"}}))
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Client().ContainerCreate(ctx, &container.Config{Image: redisImage()}, &container.HostConfig{RestartPolicy: container.RestartPolicy{Name: "always"}}, nil, nil, "ghost")
	if err == nil {
		err = e.Client().ContainerStart(ctx, r.ID, container.StartOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	du(t, cfg.DataRoot)
	if dirty {
		fmt.Println("HANGING")
		<-t.Context().Done()
	}
	stack.Unwatch()
}

// TestSupabaseCLI runs the real CLI where the image has one. Its images come
// from a registry only; without one the failure has to be short and clear.
func TestSupabaseCLI(t *testing.T) {
	if os.Getenv("BOXTEST_SUPABASE") == "" {
		t.Skip("BOXTEST_SUPABASE is not set: without a registry the CLI tries for a minute")
	}
	e := start(t, boxConfig(t, "supa"))
	scratch := filepath.Join(t.TempDir(), "scratch")
	if err := errors.Join(os.Mkdir(scratch, 0o755), os.Chown(scratch, 1000, 1000), os.Chmod(filepath.Dir(scratch), 0o755), os.Chmod(filepath.Dir(filepath.Dir(scratch)), 0o755)); err != nil {
		t.Fatal(err)
	}
	s, err := services.UpSupabase(boxCtx(t), services.SupabaseConfig{
		Dir: "/nowhere", Scratch: scratch, User: &proc.Credential{UID: 1000, GID: 1000}, LogDir: t.TempDir(), LogRel: "logs",
		Env:  []string{"PATH=" + os.Getenv("PATH"), "HOME=/home/sandbox", "DOCKER_HOST=unix:///run/supa.sock"},
		Emit: func(ev workorder.Event) { t.Logf("%+v", ev) },
	})
	t.Logf("%+v %v", s, err)
	if err == nil && s.Env["DATABASE_URL"] == "" {
		t.Fatal("no DATABASE_URL")
	}
	if e.Err() != nil {
		t.Fatal(e.Err())
	}
}

// TestPostgres has a service with a user of its own and data on a volume, both
// shifted by the remapping. It needs pg.tar with the image BOXTEST_PG.
func TestPostgres(t *testing.T) {
	f, err := os.Open(filepath.Join(os.Getenv("BOXTEST_IMAGES"), "pg.tar"))
	if err != nil {
		t.Skip(err)
	}
	image := os.Getenv("BOXTEST_PG")
	e := start(t, boxConfig(t, "postgres"))
	loadFrom(t, e.Client(), f)
	load(t, e.Client())
	ctx := boxCtx(t)
	begin := time.Now()
	stack, err := services.Up(ctx, stackConfig(t, e,
		workorder.Service{Name: "db", Image: image, Volumes: []string{"data:/var/lib/postgresql"}},
		workorder.Service{Name: "redis", Image: redisImage()},
	))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up in %s", time.Since(begin).Round(time.Millisecond))
	stack.Unwatch()
	begin = time.Now()
	e.Stop(ctx)
	t.Logf("stopped in %s", time.Since(begin).Round(time.Millisecond))
	for _, end := range stack.Ends() {
		if end.State != "ready" {
			t.Errorf("the stop is taken for a failure: %+v", end)
		}
	}
	stack.Unwatch() // the engine is gone already; it must not hang
}
