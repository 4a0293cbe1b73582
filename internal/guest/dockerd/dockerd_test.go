package dockerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"golang.org/x/sys/unix"
)

// fakeSystem is a machine of files; its mounts are recorded.
func fakeSystem(t *testing.T, files map[string]string) (system, *[]string) {
	t.Helper()
	root := t.TempDir()
	for p, text := range files {
		write(t, filepath.Join(root, p), text)
	}
	var done []string
	return system{
		root: root,
		mount: func(_, target, fstype string, flags uintptr, data string) error {
			done = append(done, strings.TrimSpace(fmt.Sprintf("mount %s %s %#x %s", strings.TrimPrefix(target, root), fstype, flags, data)))
			return nil
		},
		unmount: func(target string, _ int) error {
			done = append(done, "unmount "+strings.TrimPrefix(target, root))
			return nil
		},
	}, &done
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

const v1Mounts = `700 600 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/a
701 700 0:51 / /proc/sys ro,nosuid,nodev,noexec,relatime - proc proc ro
702 701 0:52 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw
703 702 0:53 /x /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:9 - cgroup cgroup rw,memory
704 702 0:54 /x /sys/fs/cgroup/a\040b rw,nosuid - cgroup cgroup rw,cpu
`

func TestPrepareV1(t *testing.T) {
	s, done := fakeSystem(t, map[string]string{"/proc/self/mountinfo": v1Mounts})
	if _, err := s.prepareMounts(); err != nil {
		t.Fatal(err)
	}
	cg, err := s.prepareCgroups(t.Context())
	if err != nil || cg.version != 1 || !strings.Contains(cg.note, " 1 ") {
		t.Fatalf("%+v %v", cg, err)
	}
	const keep = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME | unix.MS_REMOUNT | unix.MS_BIND
	want := []string{
		fmt.Sprintf("mount /proc/sys/net  %#x", unix.MS_BIND), fmt.Sprintf("mount /proc/sys/net  %#x", unix.MS_REMOUNT|unix.MS_BIND), fmt.Sprintf("mount   %#x", unix.MS_SHARED|unix.MS_REC),
		fmt.Sprintf("mount /sys/fs/cgroup/memory  %#x", keep),
	}
	if diff := cmp.Diff(want, *done); diff != "" {
		t.Error(diff)
	}
}

func TestPrepareNeedsNothing(t *testing.T) {
	s, done := fakeSystem(t, map[string]string{"/proc/self/mountinfo": "703 702 0:53 /x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"})
	cg, err := s.prepareCgroups(t.Context())
	if err != nil || len(*done) != 0 || cg.version != 1 {
		t.Fatalf("%+v %v %q", cg, err, *done)
	}
}

func TestPrepareWithoutCgroups(t *testing.T) {
	s, _ := fakeSystem(t, map[string]string{"/proc/self/mountinfo": "1 2 0:1 / / rw - ext4 /dev/x rw\n"})
	if _, err := s.prepareCgroups(t.Context()); err == nil {
		t.Fatal("no error")
	}
}

const v2Mount = "703 702 0:53 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n"

func TestNest(t *testing.T) {
	files := map[string]string{
		"/proc/self/mountinfo": v2Mount, "/proc/self/cgroup": "0::/\n",
		"/sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n", "/sys/fs/cgroup/cgroup.subtree_control": "cpu\n",
		"/sys/fs/cgroup/cgroup.procs": "1\n0\n17\n", "/sys/fs/cgroup/init/cgroup.procs": "",
	}
	s, _ := fakeSystem(t, files)
	cg, err := s.prepareCgroups(t.Context())
	if err != nil || cg.version != 2 {
		t.Fatalf("%+v %v", cg, err)
	}
	for p, want := range map[string]string{"init/cgroup.procs": "17", "cgroup.subtree_control": "+memory +pids"} {
		if b, err := os.ReadFile(s.path("/sys/fs/cgroup/" + p)); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", p, b, err)
		}
	}
}

func TestNestIsDoneAlready(t *testing.T) {
	s, _ := fakeSystem(t, map[string]string{
		"/proc/self/mountinfo": v2Mount, "/sys/fs/cgroup/cgroup.controllers": "cpu", "/sys/fs/cgroup/cgroup.subtree_control": "cpu",
	})
	cg, err := s.prepareCgroups(t.Context())
	on, rerr := os.ReadFile(s.path("/sys/fs/cgroup/cgroup.subtree_control"))
	if err != nil || rerr != nil || cg.version != 2 || string(on) != "cpu" || exists(s.path("/sys/fs/cgroup/init")) {
		t.Fatalf("%+v %v, %q %v", cg, err, on, rerr)
	}
}

func TestNestGivesUp(t *testing.T) {
	s, _ := fakeSystem(t, map[string]string{
		"/proc/self/mountinfo": v2Mount, "/sys/fs/cgroup/cgroup.controllers": "cpu", "/sys/fs/cgroup/cgroup.procs": "",
	})
	if err := os.Mkdir(s.path("/sys/fs/cgroup/cgroup.subtree_control"), 0o755); err != nil { // never writable
		t.Fatal(err)
	}
	if _, err := s.prepareCgroups(t.Context()); err == nil {
		t.Fatal("no error")
	}
}

func TestNestNeedsAPrivateNamespace(t *testing.T) {
	s, _ := fakeSystem(t, map[string]string{"/proc/self/mountinfo": v2Mount, "/proc/self/cgroup": "0::/system.slice/docker-1.scope\n"})
	if _, err := s.prepareCgroups(t.Context()); err == nil || !strings.Contains(err.Error(), "--cgroupns private") {
		t.Fatalf("%v", err)
	}
}

func TestCheckPrivileges(t *testing.T) {
	s, _ := fakeSystem(t, map[string]string{"/proc/self/status": "Name:\tx\nCapEff:\t00000000a80425fb\n"})
	err := s.checkPrivileges()
	for _, want := range []string{"--cap-add SYS_ADMIN", "--cap-add NET_ADMIN", "--cap-add SYS_PTRACE"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "MKNOD") {
		t.Error("MKNOD is there")
	}
}

func TestChooseDriver(t *testing.T) {
	var asked []string
	trial := func(driver string, err error) Trial {
		return Trial{driver, func(_ context.Context, dir string) error {
			asked = append(asked, driver)
			if st, serr := os.Stat(dir); serr != nil || !st.IsDir() {
				t.Errorf("no folder for %s", driver)
			}
			write(t, filepath.Join(dir, "left", "behind"), "x")
			return err
		}}
	}
	bad := errors.New("invalid argument")
	for _, c := range []struct {
		trials  []Trial
		want    string
		reasons int
	}{
		{[]Trial{trial(Overlay2, nil), trial(VFS, nil)}, Overlay2, 0},
		{[]Trial{trial(Overlay2, bad), trial(FuseOverlay, bad), trial(VFS, nil)}, VFS, 2},
		{[]Trial{trial(Overlay2, bad)}, "", 1},
	} {
		dir := t.TempDir()
		got, reasons, err := ChooseDriver(t.Context(), dir, c.trials)
		if got != c.want || len(reasons) != c.reasons || (err != nil) != (c.want == "") {
			t.Errorf("%q %q %v", got, reasons, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("the trial left %v", left)
		}
	}
	if want := []string{Overlay2, Overlay2, FuseOverlay, VFS, Overlay2}; !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
}

func TestLockRoot(t *testing.T) {
	root := t.TempDir()
	f, err := lockRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockRoot(root); !errors.Is(err, errInUse) || !strings.Contains(err.Error(), root) {
		t.Fatalf("%v", err)
	}
	f.Close()
	if f, err = lockRoot(root); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestAddresses(t *testing.T) {
	p := netip.MustParsePrefix
	for _, c := range []struct {
		taken []netip.Prefix
		want  string
	}{
		{[]netip.Prefix{p("0.0.0.0/0"), p("172.17.0.0/16")}, "10.213.0.0/16"},
		{[]netip.Prefix{p("10.213.4.5/32")}, "10.214.0.0/16"},
		{[]netip.Prefix{p("10.0.0.0/8"), p("fd00::/8")}, "100.126.0.0/16"},
	} {
		got, err := chooseAddresses(c.taken)
		if err != nil || got.all.String() != c.want || !got.all.Contains(got.bridge.Addr()) || !got.all.Overlaps(got.pool) || got.bridge.Overlaps(got.pool) {
			t.Errorf("%v: %+v %v", c.taken, got, err)
		}
	}
	if _, err := chooseAddresses([]netip.Prefix{p("10.0.0.0/8"), p("100.64.0.0/10")}); err == nil {
		t.Error("no error")
	}
}

func TestReadNetwork(t *testing.T) {
	s, _ := fakeSystem(t, map[string]string{
		"/proc/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
			"eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\neth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n",
		"/sys/class/net/eth0/mtu": "1400\n",
		"/etc/subuid":             "other:5:1\nsandbox:1000:1\nsandbox:100000:65535\n", "/etc/subgid": "sandbox:1001:1\n",
	})
	routes, err := s.routes()
	if err != nil || len(routes) != 2 || routes[1].prefix.String() != "172.17.0.0/16" || routes[0].prefix.Bits() != 0 {
		t.Errorf("%v %v", routes, err)
	}
	if m := s.mtu(routes); m != 1400 {
		t.Errorf("mtu %d", m)
	}
	if uid, gid, err := s.remapIDs("sandbox"); uid != 1000 || gid != 1001 || err != nil {
		t.Errorf("%d %d %v", uid, gid, err)
	}
	if _, _, err := s.remapIDs("nobody"); err == nil {
		t.Error("no error")
	}
}

func TestPlanByVersion(t *testing.T) {
	addr, err := chooseAddresses(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		version     string
		has, hasNot []string
		config      string
	}{
		{"20.10.24+dfsg1", []string{"--oom-score-adjust 0", "--mtu 1400"}, []string{"default-network-opt"}, `{"builder":{"entitlements":{"network-host":false,"security-insecure":false}}}`},
		{"26.1.5+dfsg1", []string{"--default-network-opt bridge=com.docker.network.driver.mtu=1400"}, []string{"oom-score"}, "containerd-snapshotter"},
		{"29.0.0", []string{"-s overlay2", "--userns-remap sandbox", "--iptables=false"}, []string{"oom-score"}, "containerd-snapshotter"},
	} {
		p := plan{version: c.version, driver: Overlay2, remap: "sandbox", dataRoot: "/d", runDir: "/r", addr: addr, mtu: 1400, dns: []string{"10.213.0.1"}}
		line := strings.Join(p.dockerd(), " ")
		for _, w := range append(c.has, "--bip 10.213.0.1/24", "base=10.213.128.0/17,size=24", "--dns 10.213.0.1", "-H fd://", "--default-cgroupns-mode private") {
			if !strings.Contains(line, w) {
				t.Errorf("%s: %s lacks %q", c.version, line, w)
			}
		}
		for _, w := range c.hasNot {
			if strings.Contains(line, w) {
				t.Errorf("%s: %s has %q", c.version, line, w)
			}
		}
		if !strings.Contains(p.config(), c.config) {
			t.Errorf("%s: %s", c.version, p.config())
		}
	}
}

func TestParseVersion(t *testing.T) {
	if v, err := parseVersion("Docker version 26.1.5+dfsg1, build a72d7cd\n"); v != "26.1.5+dfsg1" || err != nil {
		t.Errorf("%q %v", v, err)
	}
	if _, err := parseVersion("command not understood"); err == nil {
		t.Error("no error")
	}
}

func TestEnvironmentHoldsNoSecrets(t *testing.T) {
	got := environment([]string{"PATH=/x", "https_proxy=http://p", "ANTHROPIC_API_KEY=k", "SSL_CERT_FILE=/c"})
	want := []string{"PATH=" + daemonPath, "HOME=/root", "https_proxy=http://p", "SSL_CERT_FILE=/c"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCutLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, strings.Repeat("old line\n", keepLog/4)+"last line\n")
	if err := cutLog(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || len(b) > keepLog+64 || !strings.HasSuffix(string(b), "last line\n") || !strings.HasPrefix(string(b), "[…]") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// BuildKit takes git from the engine's path, and runs it as root on what a client names.
func TestNoGitForTheEngine(t *testing.T) {
	dir := t.TempDir()
	p := plan{runDir: filepath.Join(dir, "run")}
	if err := p.withhold(); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(dir, "made")
	for _, git := range []string{"git", p.tools() + "/git"} {
		err := proc.Run(t.Context(), proc.Spec{Argv: []string{"sh", "-c", git + ` init --bare "$0"`, made}, Env: environment(os.Environ(), p.tools())})
		if proc.ExitCode(err) != 128 {
			t.Errorf("%s: %v", git, err)
		}
	}
	if _, err := os.Stat(made); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("git ran: %v", err)
	}
}
