//go:build boxtest

// The tests of the box*_test.go files run as root inside a box (the capabilities
// are in ARCHITECTURE.md), with a volume on /var/lib/docker and, for the cache, one on /cache. They are
// compiled on the host (go test -c -tags boxtest), copied in and run by
// e2e/boxtests_test.go. BOXTEST_IMAGES names a folder with redis.tar, which holds
// the image BOXTEST_REDIS that serves Redis on 6379; BOXTEST_OUT is an address outside of the box that says hello.
package dockerd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/egress"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/services"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// patience bounds every wait of these tests; it is no measure of speed.
const patience = 3 * time.Minute

func boxCtx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func boxConfig(t *testing.T, name string) dockerd.Config {
	t.Helper()
	// The volume is as the image has the folder, which inner root may not pass.
	if err := os.Chmod("/var/lib/docker", 0o711); err != nil {
		t.Fatal(err)
	}
	logs := filepath.Join("/tmp", "logs-"+name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	policy, err := network()
	if err != nil {
		t.Fatal(err)
	}
	return dockerd.Config{
		DataRoot: "/var/lib/docker/" + name, RunDir: "/run/engine-" + name, LogDir: logs,
		Socket: "/run/" + name + ".sock", RemapUser: "sandbox", Group: engineGroup,
		Resolver: policy.ServeDNS, Outbound: policy.Inner,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

const engineGroup = 61990

// network is the box's network policy, which all engines of these tests share.
var network = sync.OnceValues(func() (*egress.Egress, error) {
	e, err := egress.New(egress.Config{Policy: workorder.NetworkPolicy{Mode: workorder.NetworkFull}, EngineGID: engineGroup})
	if err != nil {
		return nil, err
	}
	return e, e.Up(context.Background())
})

func names(t *testing.T, all map[string]netip.Addr) {
	t.Helper()
	policy, err := network()
	if err != nil {
		t.Fatal(err)
	}
	policy.Names(all)
}

func start(t *testing.T, cfg dockerd.Config) *dockerd.Engine {
	t.Helper()
	ctx := boxCtx(t)
	e, err := dockerd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		begin := time.Now()
		e.Stop(context.WithoutCancel(ctx))
		t.Logf("stopped in %s", time.Since(begin).Round(time.Millisecond))
		deleteBridge(t)
	})
	begin := time.Now()
	if err := e.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready in %s: %+v", time.Since(begin).Round(time.Millisecond), e.Info())
	return e
}

func deleteBridge(t *testing.T) {
	_ = proc.Run(context.WithoutCancel(t.Context()), proc.Spec{Argv: []string{"ip", "link", "del", "docker0"}})
}

// redisImage is the name of the image in redis.tar.
func redisImage() string { return os.Getenv("BOXTEST_REDIS") }

func load(t *testing.T, cli *client.Client) {
	t.Helper()
	loadFrom(t, cli, openImage(t))
}

func loadFrom(t *testing.T, cli *client.Client, f *os.File) {
	t.Helper()
	defer f.Close()
	r, err := cli.ImageLoad(boxCtx(t), f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || bytes.Contains(b, []byte("errorDetail")) {
		t.Fatalf("load: %v %s", err, b)
	}
}

func openImage(t *testing.T) *os.File {
	t.Helper()
	dir := os.Getenv("BOXTEST_IMAGES")
	if dir == "" {
		t.Skip("BOXTEST_IMAGES is not set")
	}
	f, err := os.Open(filepath.Join(dir, "redis.tar"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// run runs a command in a container and returns its output and exit code.
func run(t *testing.T, cli *client.Client, host *container.HostConfig, argv ...string) (string, int) {
	t.Helper()
	ctx := boxCtx(t)
	r, err := cli.ContainerCreate(ctx, &container.Config{Image: redisImage(), Cmd: argv, Entrypoint: []string{}}, host, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer cli.ContainerRemove(ctx, r.ID, container.RemoveOptions{Force: true})
	if err := cli.ContainerStart(ctx, r.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	wait, errs := cli.ContainerWait(ctx, r.ID, container.WaitConditionNotRunning)
	code := 0
	select {
	case w := <-wait:
		code = int(w.StatusCode)
	case err := <-errs:
		t.Fatal(err)
	}
	logs, err := cli.ContainerLogs(ctx, r.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	var b bytes.Buffer
	_, _ = stdcopy.StdCopy(&b, &b, logs)
	return b.String(), code
}

func TestStartOverlay(t *testing.T) {
	e := start(t, boxConfig(t, "overlay"))
	if d := e.Info().Driver; d != dockerd.Overlay2 {
		t.Fatalf("driver %q, notes %q", d, e.Info().Notes)
	}
	load(t, e.Client())
	out, code := run(t, e.Client(), &container.HostConfig{Resources: container.Resources{Memory: 64 << 20}}, "sh", "-c", "cat /proc/self/uid_map; ip -o link 2>/dev/null; cat /sys/class/net/eth0/mtu")
	t.Log(out)
	if code != 0 || !strings.Contains(out, "1000") {
		t.Fatalf("code %d", code)
	}
	st, err := os.Stat("/run/overlay.sock")
	if err != nil || st.Mode().Perm() != 0o600 || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Fatalf("socket: %v %v", st, err)
	}
}

func TestOutbound(t *testing.T) {
	e := start(t, boxConfig(t, "outbound"))
	load(t, e.Client())
	names(t, map[string]netip.Addr{"some-service": netip.MustParseAddr("10.213.200.7")})
	out, _ := run(t, e.Client(), nil, "getent", "hosts", "some-service")
	if !strings.Contains(out, "10.213.200.7") {
		t.Errorf("the default bridge does not know the service: %q", out)
	}
	// Who runs the box listens outside of it.
	host, port, err := net.SplitHostPort(os.Getenv("BOXTEST_OUT"))
	if err != nil {
		t.Fatal(err)
	}
	out, code := run(t, e.Client(), nil, "bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port+" && head -1 <&3")
	if code != 0 || !strings.Contains(out, "hello from outside") {
		t.Errorf("no way out of an inner container: exit code %d, %q", code, out)
	}
}

func TestRemapOwnership(t *testing.T) {
	e := start(t, boxConfig(t, "remap"))
	load(t, e.Client())
	ws := filepath.Join("/tmp", "ws-remap")
	if err := os.MkdirAll(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(ws, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	out, code := run(t, e.Client(), &container.HostConfig{Binds: []string{ws + ":/ws"}}, "sh", "-c", "id -u; echo x >/ws/file")
	if code != 0 {
		t.Fatalf("write: %d %s", code, out)
	}
	st, err := os.Stat(filepath.Join(ws, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if s := st.Sys().(*syscall.Stat_t); s.Uid != 1000 || s.Gid != 1000 {
		t.Fatalf("owner %d:%d", s.Uid, s.Gid)
	}
	if out, code := run(t, e.Client(), &container.HostConfig{Binds: []string{"/etc:/x"}}, "sh", "-c", "echo bad >/x/passwd-of-the-box"); code == 0 {
		t.Fatalf("inner root wrote to /etc: %s", out)
	}
	r, err := e.Client().ContainerCreate(boxCtx(t), &container.Config{Image: redisImage()}, &container.HostConfig{Privileged: true}, nil, nil, "")
	if err == nil {
		err = e.Client().ContainerStart(boxCtx(t), r.ID, container.StartOptions{})
	}
	if err == nil {
		t.Fatal("a privileged inner container was started")
	}
	t.Log(err)
}

func TestFuseFallback(t *testing.T) {
	cfg := boxConfig(t, "fuse")
	cfg.Trials = dockerd.RealTrials()
	cfg.Trials[0].Try = func(context.Context, string) error { return fmt.Errorf("mount overlay: invalid argument") }
	e := start(t, cfg)
	if e.Info().Driver != dockerd.FuseOverlay {
		t.Fatalf("%+v", e.Info())
	}
	load(t, e.Client())
	if out, code := run(t, e.Client(), nil, "sh", "-c", "mv /etc/hostname /tmp/ ; echo ok; rm -r /usr/share/doc; ls /usr/share"); code != 0 {
		t.Fatal(out)
	}
}

// The box's own root is an overlay, on which the kernel refuses another one.
func TestFuseOnTheBoxRoot(t *testing.T) {
	cfg := boxConfig(t, "onroot")
	cfg.DataRoot = "/data-on-root"
	e := start(t, cfg)
	if e.Info().Driver != dockerd.FuseOverlay || !strings.Contains(strings.Join(e.Info().Notes, "\n"), dockerd.Overlay2) {
		t.Fatalf("%+v", e.Info())
	}
}

func TestVfsFallback(t *testing.T) {
	cfg := boxConfig(t, "vfs")
	cfg.Trials = dockerd.RealTrials()[2:]
	e := start(t, cfg)
	if e.Info().Driver != dockerd.VFS {
		t.Fatalf("%+v", e.Info())
	}
	load(t, e.Client())
	if out, code := run(t, e.Client(), nil, "true"); code != 0 {
		t.Fatal(out)
	}
}

func TestLazyStart(t *testing.T) {
	ctx := boxCtx(t)
	e, err := dockerd.New(boxConfig(t, "lazy"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	defer deleteBridge(t)
	defer e.Stop(ctx)
	done := make(chan error, 1)
	go func() { done <- e.StartOnDemand(ctx) }()
	select {
	case err := <-done:
		t.Fatalf("started without a client: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	begin := time.Now()
	if err := proc.Run(ctx, proc.Spec{Argv: []string{"docker", "-H", "unix:///run/lazy.sock", "version"}, Stdout: t.Output(), Stderr: t.Output()}); err != nil {
		t.Fatal(err)
	}
	t.Logf("first answer after %s", time.Since(begin).Round(time.Millisecond))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestStopBeforeStart(t *testing.T) {
	ctx := boxCtx(t)
	e, err := dockerd.New(boxConfig(t, "never"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- e.StartOnDemand(ctx) }()
	e.Stop(ctx)
	if err := <-done; err == nil {
		t.Fatal("started after the stop")
	}
	<-e.Done()
}

func TestDaemonCrash(t *testing.T) {
	e := start(t, boxConfig(t, "crash"))
	load(t, e.Client())
	ctx := boxCtx(t)
	r, err := e.Client().ContainerCreate(ctx, &container.Config{Image: redisImage()}, nil, nil, nil, "survivor")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Client().ContainerStart(ctx, r.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := e.Client().ContainerInspect(ctx, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	killDaemon(t, "crash")
	begin := time.Now()
	after, err := retryInspect(ctx, e.Client(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("answered %s after the crash", time.Since(begin).Round(time.Millisecond))
	if !after.State.Running || after.State.Pid != before.State.Pid {
		t.Fatalf("the service did not live on: %+v", after.State)
	}
	killDaemon(t, "crash")
	select {
	case <-e.Done():
	case <-ctx.Done():
		t.Fatal("the second crash did not end the engine")
	}
	if proc.ExitCode(e.Err()) != 128+int(syscall.SIGKILL) {
		t.Fatalf("%v", e.Err())
	}
	if _, err := net.Dial("unix", "/run/crash.sock"); err == nil {
		t.Fatal("clients would wait for ever")
	}
}

func retryInspect(ctx context.Context, cli *client.Client, id string) (container.InspectResponse, error) {
	for {
		in, err := cli.ContainerInspect(ctx, id) // the connection to the dead daemon breaks once
		if err == nil || ctx.Err() != nil {
			return in, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func killDaemon(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile("/run/engine-" + name + "/docker.pid")
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(b), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for syscall.Kill(pid, 0) == nil {
		time.Sleep(5 * time.Millisecond)
	}
}

func TestSecondEngineIsRefused(t *testing.T) {
	start(t, boxConfig(t, "twice"))
	cfg := boxConfig(t, "twice")
	cfg.RunDir, cfg.Socket = "/run/engine-other", "/run/other.sock"
	e, err := dockerd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := boxCtx(t)
	if err := e.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(ctx); !errors.Is(err, dockerd.ErrInUse) {
		t.Fatalf("%v", err)
	}
}

// TestDirtyRoot leaves a data root as a killed box does and starts on it again.
func TestDirtyRoot(t *testing.T) {
	for round := range 3 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			cfg := boxConfig(t, "dirty")
			e := start(t, cfg)
			ctx := boxCtx(t)
			if round == 0 {
				load(t, e.Client())
			}
			stack, err := services.Up(ctx, stackConfig(t, e, workorder.Service{Name: "redis", Image: redisImage(), Volumes: []string{"data:/var/lib/redis"}}))
			if err != nil {
				t.Fatal(err)
			}
			defer stack.Unwatch()
			all, err := e.Client().ContainerList(ctx, container.ListOptions{All: true})
			if err != nil || len(all) != 1 {
				t.Fatalf("%d containers, %v", len(all), err)
			}
			if _, err := e.Client().ContainerCreate(ctx, &container.Config{Image: redisImage()}, &container.HostConfig{RestartPolicy: container.RestartPolicy{Name: "always"}}, nil, nil, "ghost"); err != nil {
				t.Fatal(err)
			}
			if err := e.Client().ContainerStart(ctx, "ghost", container.StartOptions{}); err != nil {
				t.Fatal(err)
			}
			du(t, cfg.DataRoot)
			// As where the last process of a container outlives the engine: its file system is still there, and cannot be moved.
			left := filepath.Join(cfg.DataRoot, "1000.1000/overlay2/left")
			if err := errors.Join(os.MkdirAll(left, 0o700), unix.Mount("left", left, "tmpfs", 0, "")); err != nil {
				t.Fatal(err)
			}
			if round == 2 {
				t.Cleanup(func() { _ = unix.Unmount(left, unix.MNT_DETACH) })
			}
		})
	}
}

func du(t *testing.T, dir string) {
	out, err := proc.Output(boxCtx(t), proc.Spec{Argv: []string{"sh", "-c", "du -sm " + dir + "; ls " + dir + "/1000.1000/overlay2 | wc -l"}})
	t.Logf("%s %v", out, err)
}
