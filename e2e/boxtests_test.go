//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// insideLimit bounds one box of the tests that run inside.
const insideLimit = 8 * time.Minute

// inside runs tests that have to run as root in a box, compiled here.
type inside struct {
	t      *testing.T
	image  string
	binary []byte
	tests  []string // that need a box: the others of the package have run on this machine
	images string   // folder with archives of service images

	network string   // mode of the box's network; "": the engine's default
	more    []string // capabilities beside those of a box
}

// insideOnce saves the images once for all tests of this file.
var insideOnce = sync.OnceValues(func() (*inside, error) {
	dir := filepath.Join(scratch, "inside")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), insideLimit)
	defer cancel()
	in := &inside{images: dir}
	for file, name := range map[string]string{"redis.tar": redisImage, "pg.tar": postgresImage} {
		r, err := eng.ImageSave(ctx, []string{name})
		if err != nil {
			return nil, err
		}
		f, err := os.Create(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(f, r); err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	out, err := proc.Output(ctx, proc.Spec{Argv: []string{bin, "image", "build"}})
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(out))
	in.image = fields[len(fields)-1]
	return in, nil
})

// newInside compiles the tests of a package below internal/guest.
func newInside(t *testing.T, pkg string) *inside {
	t.Helper()
	in, err := insideOnce()
	if err != nil {
		t.Fatal(err)
	}
	c := *in
	c.t = t
	binary := filepath.Join(t.TempDir(), "box.test")
	if _, err := proc.Output(t.Context(), proc.Spec{
		Argv: []string{"go", "test", "-c", "-tags", "boxtest", "-o", binary, "../internal/guest/" + pkg},
		Env:  append(os.Environ(), "CGO_ENABLED=0"),
	}); err != nil {
		t.Fatal(err)
	}
	if c.binary, err = os.ReadFile(binary); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../internal/guest/" + pkg + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(b), "//go:build boxtest\n") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(b, -1) {
			c.tests = append(c.tests, string(m[1]))
		}
	}
	return &c
}

// without leaves out tests that have a box of another kind.
func (in *inside) without(tests ...string) *inside {
	in.tests = slices.DeleteFunc(in.tests, func(test string) bool { return slices.Contains(tests, test) })
	return in
}

// box is a container that runs the tests.
type box struct {
	*inside
	id    string
	tests []string
	out   *syncBuffer
}

// boxCapabilities are those of a confined box (see internal/host/runtime/docker/spec.go).
var boxCapabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_ADMIN", "SETFCAP", "SETGID", "SETUID", "SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE",
}

// create makes a box like the launcher's, with the test binary in place of the entrypoint.
func (in *inside) create(mounts []string, env []string, tests ...string) *box {
	in.t.Helper()
	ctx := in.t.Context()
	r, err := eng.ContainerCreate(ctx, &container.Config{
		Image: in.image, Entrypoint: []string{"/box.test"}, Cmd: []string{"-test.v", "-test.run", "^(" + strings.Join(tests, "|") + ")$"},
		Env: append([]string{
			"BOXTEST_IMAGES=/images", "BOXTEST_REDIS=" + redisImage, "BOXTEST_PG=" + postgresImage,
		}, env...),
	}, &container.HostConfig{
		CapDrop: []string{"ALL"}, CapAdd: append(slices.Clone(boxCapabilities), in.more...), SecurityOpt: []string{"seccomp=unconfined", "apparmor=unconfined"},
		MaskedPaths: []string{}, ReadonlyPaths: []string{},
		Binds:       append([]string{in.images + ":/images:ro"}, mounts...),
		Resources:   container.Resources{Devices: []container.DeviceMapping{{PathOnHost: "/dev/fuse", PathInContainer: "/dev/fuse", CgroupPermissions: "rwm"}}},
		NetworkMode: container.NetworkMode(in.network), Sysctls: map[string]string{"net.ipv6.conf.all.disable_ipv6": "0"},
		// The tests are an ordinary program; somebody has to reap.
		Init: new(true),
	}, nil, nil, "")
	if err != nil {
		in.t.Fatal(err)
	}
	counted.Started(in.t.Name(), r.ID)
	b := &box{inside: in, id: r.ID, tests: tests, out: &syncBuffer{}}
	in.t.Cleanup(func() {
		ctx := context.WithoutCancel(in.t.Context())
		if err := eng.ContainerRemove(ctx, b.id, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			in.t.Error(err)
		}
	})
	if err := eng.CopyToContainer(ctx, b.id, "/", tarOf("box.test", in.binary), container.CopyToContainerOptions{}); err != nil {
		in.t.Fatal(err)
	}
	b.start()
	return b
}

func (b *box) start() {
	b.t.Helper()
	ctx := b.t.Context()
	if err := eng.ContainerStart(ctx, b.id, container.StartOptions{}); err != nil {
		b.t.Fatal(err)
	}
	logs, err := eng.ContainerLogs(ctx, b.id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		b.t.Fatal(err)
	}
	go func() {
		defer logs.Close()
		_, _ = stdcopy.StdCopy(b.out, b.out, logs)
	}()
}

func (b *box) wait() int {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), insideLimit)
	defer cancel()
	done, errs := eng.ContainerWait(ctx, b.id, container.WaitConditionNotRunning)
	select {
	case w := <-done:
		return int(w.StatusCode)
	case err := <-errs:
		b.t.Fatalf("%v\n%s", err, b.out)
	}
	return -1
}

// passed waits for the end and checks that every test ran and passed.
func (b *box) passed() {
	b.t.Helper()
	code := b.wait()
	b.t.Log(b.out)
	if code != 0 {
		b.t.Errorf("exit code %d", code)
	}
	for _, test := range b.tests {
		if !strings.Contains(b.out.String(), "--- PASS: "+test+" ") {
			b.t.Errorf("%s did not pass", test)
		}
	}
	if len(b.tests) == 0 {
		b.t.Error("no test needs a box")
	}
}

// killWhenHanging kills the box once its test has done its work and waits.
func (b *box) killWhenHanging() {
	b.t.Helper()
	for range 1200 {
		if strings.Contains(b.out.String(), "HANGING") {
			if err := eng.ContainerKill(b.t.Context(), b.id, "KILL"); err != nil {
				b.t.Fatal(err)
			}
			b.wait()
			return
		}
		if strings.Contains(b.out.String(), "--- FAIL") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Fatalf("the box never got to the end of its work:\n%s", b.out)
}

func newVolume(t *testing.T) string {
	t.Helper()
	v, err := eng.VolumeCreate(t.Context(), volume.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.VolumeRemove(context.WithoutCancel(t.Context()), v.Name, true); err != nil {
			t.Error(err)
		}
	})
	return v.Name
}

// The inner engine in a confined box: drivers, ownership, crash, services, stop.
func TestInnerEngine(t *testing.T) {
	t.Parallel()
	in := newInside(t, "dockerd")
	out := "BOXTEST_OUT=" + sayHello(t)
	in = in.without("TestKillNineAndRestart", "TestTwoBoxesOneCache", "TestSupabaseCLI") // they have boxes of their own
	if !nightly {
		in = in.without("TestVfsFallback", "TestFuseOnTheBoxRoot", "TestPostgres", "TestSecondEngineIsRefused")
	}
	in.create(nil, []string{out}, in.tests...).passed()
}

// The guard before an engine with remapped users, BuildKit and compose.
func TestGuardInside(t *testing.T) {
	t.Parallel()
	in := newInside(t, "guard")
	var env []string
	if nightly {
		env = []string{"BOXTEST_NIGHTLY=1"} // races are run more often
	}
	in.create(nil, env, in.tests...).passed()
}

// The network policy in a box whose world is made by the test itself.
func TestNetworkPolicyInside(t *testing.T) {
	t.Parallel()
	in := newInside(t, "egress")
	in.network = "none"
	in.more = []string{"NET_RAW", "NET_BIND_SERVICE"} // of the world, which has servers on low ports and pings
	in.create(nil, nil, in.tests...).passed()
}

// What setup left, below the folders of later boxes, on a confined box's own mounts.
func TestSnapshotsInside(t *testing.T) {
	t.Parallel()
	in := newInside(t, "setupcache")
	in.create(nil, nil, in.tests...).passed()
}

// sayHello listens on this machine's side of the bridge and greets whoever connects.
func sayHello(t *testing.T) (address string) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(hostAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello from outside\n")
			_ = c.Close()
		}
	}()
	return ln.Addr().String()
}

// A box that is killed leaves nothing on its data root that the next one stumbles over.
func TestKilledBoxes(t *testing.T) {
	t.Parallel()
	in := newInside(t, "dockerd")
	data := newVolume(t) + ":/var/lib/docker"
	const run = "TestKillNineAndRestart"
	kills := 0
	if nightly {
		kills = 2
	}
	for range kills {
		in.create([]string{data}, []string{"BOXTEST_HANG=1"}, run).killWhenHanging()
	}
	again := in.create([]string{data}, []string{"BOXTEST_HANG=1"}, run)
	again.killWhenHanging()
	again.out = &syncBuffer{}
	again.start() // the same container
	again.killWhenHanging()
	in.create([]string{data}, nil, run).passed()
}

// Boxes share layers, at the same time and after one of them was killed, and none can change them.
func TestSharedLayers(t *testing.T) {
	t.Parallel()
	in := newInside(t, "dockerd")
	cache := newVolume(t) + ":/cache"
	const run = "TestTwoBoxesOneCache"
	env := func(id string, more ...string) []string {
		return append([]string{"BOXTEST_CACHE=/cache", "BOXTEST_ID=" + id}, more...)
	}
	in.create([]string{cache}, env("cold", "BOXTEST_HANG=1"), run).killWhenHanging()
	one := in.create([]string{cache}, env("one", "BOXTEST_WARM=1"), run)
	two := in.create([]string{cache}, env("two", "BOXTEST_WARM=1"), run)
	one.passed()
	two.passed()
}

func tarOf(name string, content []byte) io.Reader {
	var b bytes.Buffer
	writeTar(&b, name, 0o755, content)
	return &b
}
