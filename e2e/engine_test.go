//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// cable is a way to the engine that can be cut: what the program sees is an
// engine that is gone, what the box sees is nothing at all.
type cable struct {
	path string
	mu   sync.Mutex
	ln   net.Listener
	open map[net.Conn]bool
}

func newCable(t *testing.T) *cable {
	t.Helper()
	c := &cable{path: filepath.Join(shortDir(t), "docker.sock")}
	c.join(t)
	t.Cleanup(c.cut)
	return c
}

func (c *cable) host() string { return "unix://" + c.path }

func (c *cable) join(t *testing.T) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", c.path)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.ln, c.open = ln, map[net.Conn]bool{}
	c.mu.Unlock()
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			go c.carry(t.Context(), near)
		}
	}()
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ln.Close()
	for conn := range c.open {
		conn.Close()
	}
}

func (c *cable) carry(ctx context.Context, near net.Conn) {
	defer near.Close()
	network, address, ok := strings.Cut(eng.DaemonHost(), "://")
	if !ok {
		return
	}
	far, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return
	}
	defer far.Close()
	c.mu.Lock()
	c.open[near], c.open[far] = true, true
	c.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // either end may be cut
			if half, ok := way[0].(*net.UnixConn); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}

// shortDir is a folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sa-e2e-") //nolint:usetesting // its name holds the test's, which is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// The engine is away for a moment: the run does not notice.
func TestEngineAwayForAMoment(t *testing.T) {
	t.Parallel()
	c := newCable(t)
	w := newCarefulUser(t, "DOCKER_HOST="+c.host()).work(await("the-cut") + "echo after-the-cut")
	c.cut()
	w.waitFor("stopped answering")
	tell(t, w.box(), "the-cut")
	c.join(t)
	landed(t, w.repo, w.end(0, workorder.StatusSuccess, workorder.EndedByAgent))
	if got := w.out.String(); strings.Count(got, "agent-is-busy") != 1 || strings.Count(got, "after-the-cut") != 1 {
		t.Errorf("events are lost or doubled:\n%s", got)
	}
}

// ownEngine is an engine of the test's own, on a disk of its own.
type ownEngine struct {
	*client.Client
	t    *testing.T
	dir  string
	argv []string
	p    *proc.Process
	// address is this machine as its boxes see it.
	address string
}

const ownBox = "sandbox-agent-e2e/box"

// ownEngines are those that were started so far: each has a network of its own, also beside another run of these tests.
var ownEngines atomic.Int32

// freeNetwork is the third number of a network that this machine has no address in.
func freeNetwork(t *testing.T, first int) int {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 250 {
		n := (first+i)%250 + 1
		if !slices.ContainsFunc(addrs, func(a net.Addr) bool { return strings.HasPrefix(a.String(), fmt.Sprintf("10.213.%d.", n)) }) {
			return n
		}
	}
	t.Fatal("every network of 10.213.0.0/16 is taken")
	return 0
}

// newOwnEngine starts an engine whose disk holds size bytes, in memory, with a
// small image of the box on it. Its network reaches this machine and no further.
func newOwnEngine(t *testing.T, size int64, args ...string) *ownEngine {
	t.Helper()
	smallBox(t)
	n := int(ownEngines.Add(1))
	// Far from each other: another may be about to take the next one.
	e := &ownEngine{t: t, dir: shortDir(t), address: fmt.Sprintf("10.213.%d.1", freeNetwork(t, os.Getpid()+n*25))}
	data := filepath.Join(e.dir, "data")
	if err := os.Mkdir(data, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", data, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(data, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	bridge := fmt.Sprintf("sa%d-%d", os.Getpid(), n)
	e.ip("link", "add", bridge, "type", "bridge")
	t.Cleanup(func() { e.ip("link", "del", bridge) })
	e.ip("addr", "add", e.address+"/24", "dev", bridge)
	e.ip("link", "set", bridge, "up")
	e.argv = []string{
		"dockerd", "--data-root", data, "--exec-root", filepath.Join(e.dir, "exec"), "--pidfile", filepath.Join(e.dir, "pid"),
		"-H", e.host(), "--bridge", bridge, "--iptables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false",
	}
	e.argv = append(e.argv, args...)
	var err error
	if e.Client, err = client.NewClientWithOpts(client.WithHost(e.host()), client.WithAPIVersionNegotiation()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.stop()
		e.Close()
	})
	t.Cleanup(counted.Follow(t.Context(), e))
	e.start()
	e.load(ownBox)
	return e
}

// load brings an image of the tests' engine to this one.
func (e *ownEngine) load(name string) {
	e.t.Helper()
	img, err := eng.ImageSave(e.t.Context(), []string{name})
	if err != nil {
		e.t.Fatal(err)
	}
	defer img.Close()
	loaded, err := e.ImageLoad(e.t.Context(), img)
	if err != nil {
		e.t.Fatal(err)
	}
	defer loaded.Body.Close()
	if b, err := io.ReadAll(loaded.Body); err != nil || bytes.Contains(b, []byte(`"error"`)) {
		e.t.Fatalf("load %s: %s %v", name, b, err)
	}
}

func (e *ownEngine) ip(args ...string) {
	e.t.Helper()
	if _, err := proc.Output(context.WithoutCancel(e.t.Context()), proc.Spec{Argv: append([]string{"ip"}, args...)}); err != nil {
		e.t.Fatal(err)
	}
}

func (e *ownEngine) host() string { return "unix://" + filepath.Join(e.dir, "docker.sock") }

func (e *ownEngine) start() {
	e.t.Helper()
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	// Its end is kill's, also when the test's time is up.
	e.p, err = proc.Start(context.WithoutCancel(e.t.Context()), proc.Spec{Argv: e.argv, Stdout: log, Stderr: log})
	if err != nil {
		e.t.Fatal(err)
	}
	for range 1200 {
		if _, err = e.Ping(e.t.Context()); err == nil {
			return
		}
		select {
		case <-e.p.Done():
			b, rerr := os.ReadFile(log.Name())
			e.t.Fatalf("the engine ended: %s", errors.Join(err, rerr, errors.New(string(b))))
		case <-time.After(100 * time.Millisecond):
		}
	}
	e.t.Fatalf("the engine does not answer: %v", err)
}

// kill is a sudden end of the engine and its containerd. Its containers live on.
func (e *ownEngine) kill() {
	e.t.Helper()
	e.p.Signal(syscall.SIGKILL)
	<-e.p.Done()
	// The next engine would take a containerd that nobody has reaped for a living one.
	if err := os.Remove(filepath.Join(e.dir, "exec/containerd/containerd.pid")); err != nil {
		e.t.Error(err)
	}
}

// stop ends the engine and what runs on it.
func (e *ownEngine) stop() {
	e.p.Signal(syscall.SIGTERM)
	select {
	case <-e.p.Done():
	case <-time.After(30 * time.Second): // it grants containers 15
		e.p.Signal(syscall.SIGKILL)
		<-e.p.Done()
	}
}

// buildsSmallBox: one builds, the next finds the layers.
var buildsSmallBox sync.Mutex

// smallBox makes an image with no more of the box than a shell, git, nft and its program.
func smallBox(t *testing.T) {
	t.Helper()
	buildsSmallBox.Lock()
	defer buildsSmallBox.Unlock()
	u := newUser(t)
	c := u.run("", "image", "build")
	if c.code != 0 {
		t.Fatalf("image build: exit code %d", c.code)
	}
	base, err := provision.EnsureBase(t.Context(), eng, provision.Options{Version: version.Get().Version, StateDir: u.state})
	if err != nil {
		t.Fatal(err)
	}
	if err := buildImage(t.Context(), ownBox, "FROM "+base+"\n"+fmt.Sprintf(aptInstall, "git ca-certificates procps nftables")+
		"RUN groupadd -g 1000 sandbox && useradd -u 1000 -g 1000 -m -s /bin/bash sandbox\n"+
		"COPY --from="+lastLine(c.stdout)+" "+workorder.EntrypointIn+" "+workorder.EntrypointIn+"\n"+
		"ENTRYPOINT [\""+workorder.EntrypointIn+"\", \"init\"]\n"); err != nil {
		t.Fatal(err)
	}
}

// The engine is killed under a run. When it comes back it ends what it finds,
// as it would before a restart: the run lands.
func TestEngineKilled(t *testing.T) {
	t.Parallel()
	e := newOwnEngine(t, 1<<30)
	u := newUser(t, "DOCKER_HOST="+e.host())
	w := u.work("sleep 600", "--image", ownBox)
	e.kill()
	w.waitFor("stopped answering")
	e.start()
	c := w.wait()
	r := u.plainResult(w.id)
	if r.Status != workorder.StatusInterrupted || c.code != workorder.ExitInterrupted {
		t.Errorf("exit code %d, %s by %s: %s", c.code, r.Status, r.EndedBy, r.Reasons)
	}
	landed(t, w.repo, r)
	u.noneLeft(e.Client)
}

// plainResult reads the result where it lies; the user's engine is not the tests'.
func (u *user) plainResult(id string) *workorder.Result {
	u.t.Helper()
	b, err := os.ReadFile(filepath.Join(u.state, id, workorder.ResultFile))
	if err != nil {
		u.t.Fatal(err)
	}
	r, err := workorder.DecodeResult(b)
	if err != nil {
		u.t.Fatal(err)
	}
	return r
}

// The agent fills the disk that everything of the box lies on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	e := newOwnEngine(t, 700<<20)
	u := newUser(t, "DOCKER_HOST="+e.host())
	type filled struct{ from, to string }
	fills := map[string]filled{"without room for it": {"/dev/urandom", "fill"}}
	if nightly {
		fills["outside the repository"] = filled{"/dev/zero", "/tmp/fill"}
		fills["in the repository"] = filled{"/dev/zero", "fill"} // packed it has room
	}
	for name, f := range fills {
		t.Run(name, func(t *testing.T) {
			repo := u.repo(map[string]string{"README": "x"})
			c := u.run("", "create", "--image", ownBox, "--task", "x", "--repo", repo, "-p", u.project(scripted("", busy+
				"dd bs=1M if="+f.from+" of="+f.to+" 2>&1 | tail -n 3\ncat "+f.from+" >>"+f.to+"\nexit 3")))
			r := u.plainResult(c.task(t))
			if c.code != workorder.ExitTaskFailed || r.Status != workorder.StatusFailed || r.EndedBy != workorder.EndedByAgent {
				t.Errorf("exit code %d, %s by %s: %s", c.code, r.Status, r.EndedBy, r.Reasons)
			}
			if f.from == "/dev/urandom" {
				// Commits land; the rest is reported as lost.
				if got := gittest.Git(t, repo, "show", r.Branch+":committed"); got != "committed" || len(r.Warnings) == 0 {
					t.Errorf("committed work: %q, warnings %q", got, r.Warnings)
				}
			} else {
				landed(t, repo, r)
			}
			u.noneLeft(e.Client)
		})
	}
}
