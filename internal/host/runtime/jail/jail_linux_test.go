package jail

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/jailshim"
)

var update = flag.Bool("update", false, "write golden files anew")

// What a jail may do, and what of this machine is in it.
func TestBubblewrap(t *testing.T) {
	t.Parallel()
	m := hostFiles{top: []topDir{{"/bin", "usr/bin"}, {path: "/lib64"}}, etc: []string{"/etc/alternatives", "/etc/ssl/certs"}, files: []etcFile{{"/etc/ssl/openssl.cnf", "x"}}, resolv: []byte("nameserver 192.0.2.1\n"), masked: []maskedPath{{"/proc/acpi", true}, {path: "/proc/keys"}}}
	for name, j := range map[string]bwrapConfig{
		"root": {
			startConfig: startConfig{UID: 0x70000001, GID: 0x70000001, Limits: runtime.Limits{MemoryBytes: 64 << 20}, Mounts: []runtime.Mount{{Source: "/src/a", Target: "/src/deep/a/"}, {Source: "/data", Target: "/data", ReadOnly: true}}},
			root:        true, groups: []jailshim.Group{{Dir: "/sys/fs/cgroup/memory/x"}}, groupsInside: []string{"/sys/fs/cgroup/memory"},
		},
		"user": {startConfig: startConfig{UID: 1000, GID: 1001, NetworkNone: true, Limits: runtime.Limits{MemoryBytes: 64 << 20}}},
	} {
		j.dir, j.guest, j.machine = "/state/sandboxes/x", "/state/guest-0", m
		argv, data := j.arguments([]byte("filter"))
		var b strings.Builder
		for _, a := range argv {
			if strings.HasPrefix(a, "--") {
				b.WriteString("\n" + a)
			} else {
				b.WriteString(" " + a)
			}
		}
		for i, d := range data {
			b.WriteString("\n\n" + string(rune('0'+(jailshim.FirstData+i)/10)) + string(rune('0'+(jailshim.FirstData+i)%10)) + ":\n" + strings.TrimSpace(string(d)))
		}
		golden := filepath.Join("testdata", name+".golden")
		got := strings.TrimPrefix(b.String(), "\n") + "\n"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got\n%s", name, got)
		}
		line, packed := j.bubblewrap("/usr/bin/bwrap", []byte("filter"))
		if slices.Contains(line, "/src/a") || string(packed[len(packed)-1]) != strings.Join(argv, "\x00")+"\x00" {
			t.Errorf("%s: %q", name, line)
		}
	}
}

// A guest that was just written can be run, also by who starts others meanwhile: a process that is being started has this one's files until it runs.
func TestGuestAtOnce(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	content = append(content, make([]byte, 8<<20)...) // as large as the guest
	for range 10 {
		state := filepath.Join(t.TempDir(), "state")
		var wg sync.WaitGroup
		var files sync.Map
		for range 16 {
			s := newRuntime(kindJail, Options{State: state, Guest: func(context.Context, string) (image.Packed, error) {
				return image.Packed{Hash: fmt.Sprintf("%x", sha256.Sum256(content)), Size: int64(len(content)), Unpack: func() ([]byte, error) { return content, nil }}, nil
			}}).(*jails)
			wg.Go(func() {
				path, err := s.guest(t.Context())
				var st os.FileInfo
				if err == nil {
					st, err = os.Stat(path)
				}
				if err == nil {
					files.Store(st.Sys().(*syscall.Stat_t).Ino, true)
					err = exec.CommandContext(t.Context(), path).Run()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		n := 0
		files.Range(func(any, any) bool { n++; return true })
		if n != 1 { // a replaced file can no longer be mounted
			t.Errorf("the program was written %d times", n)
		}
	}
}

// The guest is unpacked once, by however many at once, and again where its file is not as it was written. Nobody else may put another in its place.
func TestGuest(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	content := []byte("program")
	var unpacked atomic.Int32
	s := newRuntime(kindJail, Options{State: state, Guest: func(context.Context, string) (image.Packed, error) {
		return image.Packed{Hash: fmt.Sprintf("%x", sha256.Sum256(content)), Size: int64(len(content)), Unpack: func() ([]byte, error) {
			unpacked.Add(1)
			return content, nil
		}}, nil
	}}).(*jails)
	path, err := s.guest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, times int32) {
		t.Helper()
		unpacked.Store(0)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if again, err := s.guest(t.Context()); again != path || err != nil {
					t.Errorf("%s: %s, %v", what, again, err)
				}
			})
		}
		wg.Wait()
		st, err := os.Lstat(path)
		if err != nil || st.Mode() != guestMode || st.Size() != int64(len(content)) || unpacked.Load() != times {
			t.Errorf("%s: %v, unpacked %d times, %v", what, st.Mode(), unpacked.Load(), err)
		}
	}
	check("as it was", 0)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, content, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", nil, 0o400); err != nil { // of a process that was killed
		t.Fatal(err)
	}
	for what, put := range map[string]func() error{
		"gone":     func() error { return nil },
		"a link":   func() error { return os.Symlink(other, path) },
		"short":    func() error { return os.WriteFile(path, content[1:], guestMode) },
		"writable": func() error { return errors.Join(os.WriteFile(path, content, 0o600), os.Chmod(path, 0o733)) },
		"set-uid": func() error {
			return errors.Join(os.WriteFile(path, content, 0o600), os.Chmod(path, guestMode|os.ModeSetuid))
		},
	} {
		if err := errors.Join(os.Remove(path), put()); err != nil {
			t.Fatal(err)
		}
		check(what, 1)
	}
	if err := os.Chmod(state, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := s.guest(t.Context()); err == nil {
		t.Error("everybody may put another program there")
	}
	if entries, err := os.ReadDir(state); len(entries) != 1 || err != nil {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// A trial counts for the same circumstances alone, until a jail could not be started.
func TestTried(t *testing.T) {
	t.Parallel()
	now := circumstances()
	if now == "" {
		t.Skip("bubblewrap is missing")
	}
	state := t.TempDir()
	s := newRuntime(kindJail, Options{State: state}).(*jails)
	over, cancel := context.WithCancel(t.Context())
	cancel() // no trial ends well
	file := filepath.Join(state, triedFile)
	for content, ok := range map[string]bool{now: true, now[1:]: false, now + "0": false} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.tried(over); (err == nil) != ok {
			t.Errorf("%q: %v", content, err)
		}
	}
	if err := os.WriteFile(file, []byte(now), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.doubt(over); err == nil {
		t.Error("an old trial is believed")
	}
	if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Folders and records that are not what this user has made are named as damaged, and no other is: they are not started, and nothing that a link leads to is removed with them.
func TestForeign(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	s := newRuntime(kindJail, Options{State: state}).(*jails)
	add := func(name string) *sandboxDir {
		f, err := s.make(name, record{Kind: kindJail, Labels: map[string]string{runtime.LabelSandbox: name}, startConfig: startConfig{UID: os.Getuid(), GID: os.Getgid()}})
		if err != nil {
			t.Fatal(err)
		}
		f.close()
		return f
	}
	good := add("good")
	if _, err := s.make("good", record{}); !errors.Is(err, runtime.ErrConflict) {
		t.Errorf("a name that is taken: %v", err)
	}
	elsewhere := t.TempDir()
	content, err := os.ReadFile(filepath.Join(good.path, recordFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, recordFile), content, 0o600); err != nil {
		t.Fatal(err)
	}
	swap := func(name string, put func(path string) error) {
		path := filepath.Join(add(name).path, recordFile)
		if err := errors.Join(os.Remove(path), put(path)); err != nil {
			t.Fatal(err)
		}
	}
	swap("linked-record", func(path string) error { return os.Symlink(filepath.Join(elsewhere, recordFile), path) })
	swap("second-name", func(path string) error { return os.Link(filepath.Join(elsewhere, recordFile), path) })
	swap("garbage", func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) })
	swap("no-record", func(string) error { return nil })
	swap("folder", func(path string) error { return os.Mkdir(path, 0o700) })
	for name, content := range map[string]string{
		"empty": "", "null": "null", "nul-bytes": strings.Repeat("\x00", 500), "other-types": `{"kind":1,"labels":[]}`, "of-another": `{"kind":"jail","labels":{"sandbox-agent.sandbox":"good"}}`, "no-labels": `{"kind":"jail"}`,
	} {
		swap(name, func(path string) error { return os.WriteFile(path, []byte(content), 0o600) })
	}
	if err := os.Symlink(elsewhere, filepath.Join(s.dir, "linked-folder")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.sweep(t.Context())
	named := func(name string) runtime.Instance {
		t.Helper()
		all, err := s.Instances(t.Context(), map[string]string{runtime.LabelSandbox: name})
		if len(all) != 1 || err != nil {
			t.Fatalf("%s: %+v, %v", name, all, err)
		}
		return all[0]
	}
	if b := named("good"); b.Running() || b.Damaged != nil {
		t.Errorf("%+v", b)
	}
	if all, err := s.Instances(t.Context(), map[string]string{runtime.LabelSandbox: "nothing"}); len(all) != 0 || err != nil {
		t.Errorf("%+v, %v", all, err)
	}
	bad := []string{"linked-record", "second-name", "garbage", "no-record", "folder", "empty", "null", "nul-bytes", "other-types", "of-another", "no-labels", "linked-folder", "file"}
	if all, err := s.Instances(t.Context(), map[string]string{runtime.LabelSandbox: ""}); len(all) != 1+len(bad) || err != nil {
		t.Errorf("%+v, %v", all, err)
	}
	for _, name := range bad {
		if b := named(name); b.Damaged == nil || b.ID != name || b.Labels[runtime.LabelSandbox] != name || !strings.Contains(b.Damaged.Error(), string(filepath.Separator)+name) || strings.Count(b.Damaged.Error(), recordFile) > 1 {
			t.Errorf("%+v", b)
		}
		if err := s.Start(t.Context(), name); err == nil {
			t.Errorf("%s was started", name)
		}
		if _, err := os.Lstat(filepath.Join(s.dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range bad {
		if err := s.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if all, err := os.ReadDir(s.dir); len(all) != 1 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := os.Stat(filepath.Join(elsewhere, recordFile)); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"..", "nothing"} {
		if _, err := s.Stream(t.Context(), name); err == nil {
			t.Errorf("a stream to %s", name)
		}
	}
}

// Of two kinds each sees its own, and a name is given once.
func TestKinds(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	jailed, machines := newRuntime(kindJail, Options{State: state}).(*jails), newRuntime(kindMachine, Options{State: state}).(*jails)
	me := startConfig{UID: os.Getuid(), GID: os.Getgid()}
	for _, row := range []struct {
		s    *jails
		name string
	}{{jailed, "a"}, {machines, "b"}} {
		f, err := row.s.make(row.name, record{Kind: row.s.kind, Labels: map[string]string{runtime.LabelSandbox: row.name}, startConfig: me})
		if err != nil {
			t.Fatal(err)
		}
		f.close()
		all, err := row.s.Instances(t.Context(), nil)
		if len(all) != 1 || all[0].Name != row.name || err != nil {
			t.Errorf("%+v, %v", all, err)
		}
	}
	if _, err := jailed.make("b", record{Kind: kindJail, startConfig: me}); !errors.Is(err, runtime.ErrConflict) {
		t.Errorf("a name of the other kind: %v", err)
	}
	if err := jailed.Remove(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := jailed.Remove(t.Context(), "a"); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

func TestParseParents(t *testing.T) {
	t.Parallel()
	const v1 = `30 20 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 20 0:27 /docker/abc /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
32 20 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 20 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`
	mounts := func(table string) []*mountinfo.Info {
		all, err := mountinfo.GetMountsFromReader(strings.NewReader(table), nil)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	got := parentsIn(mounts(v1), cgroupfs.Paths("4:memory:/a/b\n3:pids:/docker/abc/x\n2:cpu,cpuacct:/\n0::/\n"))
	for c, want := range map[string]parent{
		"memory": {dir: "/sys/fs/cgroup/memory/a/b"}, "pids": {dir: "/sys/fs/cgroup/pids/x"},
		"cpu": {dir: "/sys/fs/cgroup/cpu,cpuacct"}, "cpuacct": {dir: "/sys/fs/cgroup/cpu,cpuacct"},
	} {
		if got[c] != want {
			t.Errorf("%s: %+v, want %+v", c, got[c], want)
		}
	}
	groups, inside := got.groups("/state/x", startConfig{Limits: runtime.Limits{MemoryBytes: 1, CPUs: 0.5, PIDs: 7}})
	if len(groups) != 3 || len(inside) != 3 || groups[2].Set[1] != (jailshim.Setting{File: "cpu.cfs_quota_us", Value: "50000"}) {
		t.Errorf("%+v, %v", groups, inside)
	}
	for _, p := range parentsIn(mounts("30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"), cgroupfs.Paths("0::/user.slice/a.scope\n")) {
		if !p.unified || !strings.HasPrefix(p.dir, "/sys/fs/cgroup") {
			t.Errorf("%+v", p)
		}
	}
}

// The record of a named jail is on the disk before its folder has its name; a throwaway one ends with the machine.
func TestRecordIsDurable(t *testing.T) { // not parallel: it replaces syncFile
	var synced []string
	sync := syncFile
	defer func() { syncFile = sync }()
	syncFile = func(f *os.File) error {
		synced = append(synced, filepath.Base(f.Name()))
		return sync(f)
	}
	s := newRuntime(kindJail, Options{State: t.TempDir()}).(*jails)
	for name, throwaway := range map[string]bool{"named": false, "throwaway": true} {
		synced = nil
		f, err := s.make(name, record{Kind: kindJail, startConfig: startConfig{UID: os.Getuid(), GID: os.Getgid(), Throwaway: throwaway}})
		if err != nil {
			t.Fatal(err)
		}
		f.close()
		if want := map[bool]int{false: 2, true: 0}[throwaway]; len(synced) != want {
			t.Errorf("%s: synced %q", name, synced)
		}
	}
}
