//go:build boxtest

package setupcache

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// uid is that of the places' user in these tests.
const uid = 4242

// world is a volume and what boxes of it see.
type world struct {
	t      *testing.T
	volume string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, volume: filepath.Join(t.TempDir(), "volume")}
	w.mount(w.volume)
	return w
}

// path is one in the volume.
func (w *world) path(p ...string) string {
	return filepath.Join(append([]string{w.volume, format}, p...)...)
}

// mount puts an empty file system of its own on a folder.
func (w *world) mount(at string) {
	w.t.Helper()
	if err := os.MkdirAll(at, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, ""); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// box is a store and its places.
type box struct {
	*Store
	t          *testing.T
	tree, home string
	tmp        string
}

// box makes a box: its work tree has a repository and no files, its home a file of the image.
func (w *world) box(id string) *box {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "snapshots-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &box{t: w.t, tree: filepath.Join(dir, "tree"), home: filepath.Join(dir, "home"), tmp: filepath.Join(dir, "tmp")}
	for _, d := range []string{b.tree, b.home, b.tree + "/.git", b.home + "/image", b.tmp} {
		if err := errors.Join(os.MkdirAll(d, 0o755), os.Chown(d, uid, uid)); err != nil {
			w.t.Fatal(err)
		}
	}
	place, err := proc.NewNamespace(proc.OwnMounts, func() error { return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	b.Store = New(Config{
		MountDir: filepath.Join(dir, "mounts"), ID: id, Log: slog.New(slog.DiscardHandler), User: &proc.Credential{UID: uid, GID: uid, Namespace: place},
		Dirs: []Dir{{Name: "tree", Path: b.tree, Whole: true, Apart: []string{".git"}, Own: []string{".env"}}, {Name: "home", Path: b.home}, {Name: "tmp", Path: b.tmp, Scratch: true}},
	})
	if err := Reserve(w.volume, b.cfg.MountDir); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = errors.Join(b.mounts.unmountAll(), b.Close(), place.Close())
		for _, d := range []string{"kept", "run"} {
			_ = unix.Unmount(filepath.Join(dir, "mounts", d), unix.MNT_DETACH)
		}
		all, _ := os.ReadFile("/proc/self/mountinfo")
		for line := range strings.Lines(string(all)) {
			if f := strings.Fields(line); strings.HasPrefix(f[4], dir) {
				_ = unix.Unmount(f[4], unix.MNT_DETACH)
			}
		}
	})
	return b
}

func want(key string) Key {
	return Key{Project: "https://example.org/p", Branch: "main", Image: "sha256:1", Digest: key, Tree: "t-" + key}
}

func (b *box) lay(w Key) {
	b.t.Helper()
	if note, err := b.Mount(b.t.Context(), w); err != nil || !b.Mounted() {
		b.t.Fatalf("%q, %v", note, err)
	}
	b.note(b.t.Context())
}

// sh runs a script as the user, in the user's mount namespace.
func (b *box) sh(script string) (string, error) {
	out, err := proc.Output(b.t.Context(), proc.Spec{Argv: []string{"/bin/sh", "-c", script}, Dir: b.tree, User: b.cfg.User, Env: []string{"PATH=/usr/bin:/bin", "HOME=" + b.home}})
	return string(out), err
}

func (b *box) must(script, want string) {
	b.t.Helper()
	if got, err := b.sh(script); err != nil || strings.TrimSpace(got) != want {
		b.t.Fatalf("%s: %q, want %q, %v", script, got, want, err)
	}
}

func (b *box) keep() {
	b.t.Helper()
	if why, err := b.Save(b.t.Context(), true); why != nil || err != nil {
		b.t.Fatal(why, err)
	}
}

// seal takes the volume out of reach, as happens before untrusted code runs, and returns it to the next box.
func (w *world) seal() (unseal func()) {
	w.t.Helper()
	fd, err := unix.OpenTree(unix.AT_FDCWD, w.volume, unix.OPEN_TREE_CLONE)
	if err == nil {
		err = unix.Unmount(w.volume, unix.MNT_DETACH)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		if err := errors.Join(unix.MoveMount(fd, "", unix.AT_FDCWD, w.volume, unix.MOVE_MOUNT_F_EMPTY_PATH), unix.Close(fd)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// What setup left is in the next box at once, and nothing that a box does afterwards is in any other.
func TestKept(t *testing.T) {
	w := newWorld(t)
	a := w.box("a")
	a.lay(want("k"))
	if fits, _ := a.Matches(); fits {
		t.Error("there is nothing yet")
	}
	a.must("mkdir node_modules && echo dep >node_modules/dep && echo store >$HOME/store && echo idx >.git/index && echo secret=1 >.env && rm -r $HOME/image && cat node_modules/dep", "dep")
	unseal := w.seal()
	a.keep()
	a.must("cat node_modules/dep $HOME/store .git/index .env", "dep\nstore\nidx\nsecret=1")
	// The agent.
	a.must("echo evil >node_modules/dep && echo evil >>$HOME/store && rm -rf .env && echo evil >.git/index && mv node_modules nm && mv nm node_modules && cat node_modules/dep", "evil")
	unseal()

	b := w.box("b")
	b.lay(want("k"))
	if fits, same := b.Matches(); !fits || !same || b.Index() != nil {
		t.Errorf("%v %v %q", fits, same, b.Index())
	}
	b.must("ls -A; cat node_modules/dep $HOME/store; ls $HOME", ".git\nnode_modules\ndep\nstore\nstore")
	b.must("echo b >node_modules/dep; mv node_modules moved; ls -A .git", "")
	if _, err := os.Stat(b.tree + "/.git/HEAD"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}

	// Another key: the home's stores are there, the work tree is new. Another image or base branch: nothing is.
	c := w.box("c")
	c.lay(want("k2"))
	c.must("ls -A; cat $HOME/store", ".git\nstore")
	c.must("mkdir node_modules && echo 2 >node_modules/dep && echo 2 >$HOME/two && cat $HOME/two", "2")
	c.keep()
	for id, change := range map[string]func(*Key){"d-image": func(o *Key) { o.Image = "sha256:2" }, "d-branch": func(o *Key) { o.Branch = "agent/evil" }} {
		d, other := w.box(id), want("k")
		change(&other)
		d.lay(other)
		d.must("ls -A; ls $HOME", ".git\nimage")
	}

	// Layers lie on layers.
	e := w.box("e")
	e.lay(want("k2"))
	e.must("cat node_modules/dep $HOME/store $HOME/two", "2\nstore\n2")
}

// Temporary files of setup are in a later box where no command of setup runs.
func TestScratch(t *testing.T) {
	w := newWorld(t)
	a := w.box("a")
	a.lay(want("k"))
	a.must("mkdir ../tmp/d && echo 1 >../tmp/d/f && ln ../tmp/d/f ../tmp/d/g && mkfifo ../tmp/p && ls ../tmp", "d\np")
	a.keep()
	a.must("ls ../tmp; cat ../tmp/d/f; stat -c %h ../tmp/d/g", "d\np\n1\n2")

	same, other := want("k"), want("k")
	other.Tree = "t2"
	installs := other
	installs.Installs = true
	for id, c := range map[string]struct {
		want Key
		has  string
	}{"same": {same, "d\np"}, "other": {other, ""}, "installs": {installs, "d\np"}, "key": {want("k2"), ""}} {
		b := w.box(id)
		b.lay(c.want)
		b.must("ls ../tmp", c.has)
		b.must("mkdir ../tmp/mine; ls -d ../tmp/mine", "../tmp/mine")
		for scratch, has := range map[bool]string{true: c.has, false: ""} {
			at, remove, ok, err := b.Fresh(b.tmp, true, scratch, false)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			var names []string
			entries, err := os.ReadDir(at)
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if got := strings.Join(names, "\n"); err != nil || got != has {
				t.Errorf("%s: %q, want %q, %v", id, got, has, err)
			}
			if err := remove(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// What lies beside the places is in no snapshot, so that nothing is kept of a setup that wrote there.
func TestBeside(t *testing.T) {
	w := newWorld(t)
	had := map[string]string{"/there": "1", "/changed": "1", "/removed": "1"}
	for name, now := range map[string]map[string]string{
		"same": had, "new": {"/there": "1", "/changed": "1", "/removed": "1", "/new": "1"}, "changed": {"/there": "1", "/changed": "2", "/removed": "1"}, "removed": {"/there": "1", "/changed": "1"},
	} {
		b := w.box(name)
		seen := had
		b.cfg.Beside = func(context.Context) (map[string]string, error) { return seen, nil }
		b.lay(want(name))
		seen = now
		why, err := b.Save(t.Context(), true)
		if err != nil || (why == nil) != (name == "same") {
			t.Errorf("%s: %v, %v", name, why, err)
		}
	}
}

// Where a snapshot that fits cannot be laid, all of setup runs: nothing of it is there.
func TestCannotBeLaid(t *testing.T) {
	w := newWorld(t)
	a := w.box("a")
	a.lay(want("k"))
	a.must("echo setup >f; echo idx >.git/index; cat f", "setup")
	a.keep()
	b := w.box("b")
	file := filepath.Join(filepath.Dir(b.tree), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.cfg.Dirs = append(b.cfg.Dirs, Dir{Name: "file", Path: file})
	if _, err := b.Mount(t.Context(), want("k")); err == nil || b.Mounted() {
		t.Fatal("a file has layers", err)
	}
	if fits, same := b.Matches(); fits || same || b.Index() != nil || b.Attached("c") != nil {
		t.Errorf("fits %v, same %v, index %q, known %q", fits, same, b.Index(), b.Attached("c"))
	}
	b.must("ls -A; ls $HOME", ".git\nimage")
}

// An inner engine makes the box's mounts shared. What is laid over a folder must not appear where the folder is below it.
func TestSharedMounts(t *testing.T) {
	w := newWorld(t)
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "") }()
	a := w.box("a")
	a.lay(want("k"))
	a.must("echo setup >$HOME/f; touch .git/x; cat $HOME/f", "setup")
	a.keep()
	for _, path := range []string{a.tree, a.home} {
		_, remove, ok, err := a.Fresh(path, true, true, false)
		if err != nil || !ok {
			t.Fatal(path, ok, err)
		}
		if err := remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.Fields(line)[4] == a.tree+"/.git" {
			n++
		}
	}
	if err != nil || n != 1 {
		t.Errorf("the repository is mounted %d times, %v: %s", n, err, b)
	}
}

// A clean place has what setup left and nothing that the box did afterwards.
func TestFresh(t *testing.T) {
	w := newWorld(t)
	a := w.box("a")
	a.lay(want("k"))
	a.must("echo setup >f; echo setup >$HOME/f; cat f", "setup")
	a.keep()
	a.must("echo agent >f; echo agent >$HOME/f; touch new; cat f", "agent")
	for _, c := range []struct {
		path  string
		whole bool
		bare  bool
		want  string
	}{{a.tree, true, false, "f"}, {a.home, false, false, "f image"}, {a.home, false, true, "image"}} {
		at, remove, ok, err := a.Fresh(c.path, c.whole, true, c.bare)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		entries, err := os.ReadDir(at)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if b, rerr := os.ReadFile(filepath.Join(at, "f")); err != nil || !c.bare && (rerr != nil || string(b) != "setup\n") || strings.Join(names, " ") != c.want {
			t.Errorf("%s: %q %q %v %v", c.path, names, b, err, rerr)
		}
		if err := remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, _, ok, err := a.Fresh(a.tree, false, true, false); ok || err != nil {
		t.Error("a work tree of other dependencies has layers", err)
	}
}

// A box whose setup cannot run over what is kept begins again with nothing, keeps nothing, and takes nothing from others.
func TestEmpty(t *testing.T) {
	w := newWorld(t)
	a := w.box("a")
	a.lay(want("k"))
	a.must("echo setup >f; echo setup >$HOME/f; cat f", "setup")
	a.keep()
	b := w.box("b")
	b.lay(want("k"))
	b.must("cat f; echo b >g; echo b >.git/b; echo b >$HOME/g", "setup")
	if err := b.Clear(); err != nil {
		t.Fatal(err)
	}
	b.must("ls -A; ls .git; ls $HOME; echo again >f; cat f", ".git\nb\nimage\nagain")
	if fits, _ := b.Matches(); fits || (&Task{Store: b.Store}).WouldSave() {
		t.Error("it keeps or has something")
	}
	c := w.box("c")
	c.lay(want("k"))
	c.must("cat f $HOME/f; ls", "setup\nsetup\nf")
}

// Nothing is kept while anything of setup's may still write, or if it wrote a secret; the box goes on with what it has.
func TestNotKept(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		script string
		secret bool
	}{
		"a process":    {"sleep 60 >/dev/null 2>&1 &", false},
		"a secret":     {"mkdir -p d; echo 'token=VALUE' >d/npmrc", true},
		"a link":       {"ln -s /VALUE d2", true},
		"a name":       {"touch VALUE", true},
		"an open file": {"", false},
		// It has the name that the work tree's own file has.
		"a file of the home":   {"echo VALUE >$HOME/.env", true},
		"an attribute":         {"touch f", true},
		"a folder's attribute": {"mkdir f", true},
		"a short secret":       {"touch f", true},
		"an env file":          {"mkdir .env", false},
		"a link for it":        {"ln -s other .env", false},
		"a container":          {"touch f", false},
		"a submodule":          {"mkdir -p .git/modules/lib", false},
		"a work tree":          {"mkdir -p .git/worktrees/other", false},
	} {
		a := w.box(strings.ReplaceAll(name, " ", "-"))
		if c.secret {
			a.cfg.Secret = func(r io.Reader) (bool, error) {
				b, err := io.ReadAll(r)
				return bytes.Contains(b, []byte("VALUE")), err
			}
		}
		switch name {
		case "a short secret":
			a.cfg.Unseen = []string{"SHORT"}
		case "a container":
			a.cfg.Binding = func(context.Context) (int, error) { return 1, nil }
		}
		a.lay(want(name))
		a.must(c.script+"\n echo mine >$HOME/mine; cat $HOME/mine", "mine")
		if strings.HasSuffix(name, "attribute") { // the volume of this test has none that a user may set
			if err := unix.Setxattr(a.tree+"/f", "trusted.x", []byte("a VALUE"), 0); err != nil {
				t.Fatal(err)
			}
		}
		if c.script == "" {
			f, err := os.Create(a.home + "/open")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
		}
		if why, err := a.Save(t.Context(), true); why == nil || err != nil {
			t.Errorf("%s: %v, %v", name, why, err)
		}
		proc.Sweep(uid, nil)
		a.must("echo more >>$HOME/mine; cat $HOME/mine", "mine\nmore")
		if all, err := project(w.path("kept", a.project)); err != nil || len(all) > 0 {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}

// What setup does to the repository is in no snapshot: where it did anything, the commands run again.
func TestNotWhole(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		script string
		whole  bool
	}{
		"nothing":    {"touch f", true},
		"a look":     {"touch .git/index .git/index.lock .git/FETCH_HEAD && mkdir -p .git/objects/aa .git/logs && touch .git/objects/aa/x .git/logs/HEAD", true},
		"a hook":     {"mkdir -p .git/hooks && touch .git/hooks/pre-commit", false},
		"a setting":  {"echo '[core]' >>.git/config", false},
		"a tag":      {"mkdir -p .git/refs/tags && echo x >.git/refs/tags/v1", false},
		"an objects": {"mkdir -p .git/refs/objects && echo x >.git/refs/objects/index", false},
	} {
		a := w.box(strings.ReplaceAll(name, " ", "-"))
		a.lay(want(name))
		a.must(c.script, "")
		a.keep()
		if _, same := a.Matches(); same != c.whole {
			t.Errorf("%s: %v", name, same)
		}
	}
}

// Old snapshots go; those that a live box or a newer snapshot lies on stay, and so do the files of a box whose boot died a moment ago.
func TestBounded(t *testing.T) {
	w := newWorld(t)
	first := w.box("first")
	first.lay(want("0"))
	first.must("echo 0 >$HOME/f; cat $HOME/f", "0")
	first.keep()
	user := w.box("user")
	user.lay(want("0"))
	for _, k := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		b := w.box("b" + k)
		b.lay(want(k))
		b.must("echo "+k+" >$HOME/f; cat $HOME/f", k)
		b.keep()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	last := w.box("last")
	last.lay(want("7"))
	last.must("cat $HOME/f", "7")
	user.must("cat $HOME/f", "0")
	all, err := project(w.path("kept", last.project))
	needed := map[string]bool{first.under.ID: true}
	for i := range all {
		if i < keptPerProject {
			for _, id := range all[i].needs() {
				needed[id] = true
			}
		}
	}
	if err != nil || len(all) != len(needed) {
		t.Errorf("%d snapshots, %d needed, %v", len(all), len(needed), err)
	}
	if d := last.under.depth(); d > maxLayers {
		t.Errorf("%d layers", d)
	}
	runs, err := os.ReadDir(w.path("runs"))
	if err != nil || len(runs) != 3 { // first, user, last
		t.Errorf("%v, %v", runs, err)
	}
	if err := last.dir.Abandon(); err != nil { // boot died
		t.Fatal(err)
	}
	again := w.box("again")
	again.lay(want("7"))
	if _, err := os.Stat(w.path("runs", "last")); err != nil {
		t.Errorf("a box's files went before rescue could begin: %v", err)
	}
	last.must("cat $HOME/f", "7")
	if err := Hold(last.cfg.MountDir); err != nil {
		t.Error(err)
	}
}

// What the checks wrote in a clean checkout is in the next one, and in later boxes, without the checkout's repository.
func TestKeepFresh(t *testing.T) {
	w := newWorld(t)
	a := w.box("a")
	a.lay(want("k"))
	a.must("echo setup >f; cat f", "setup")
	a.keep()
	for _, path := range []string{a.tree, a.home, a.tmp} {
		at, remove, ok, err := a.Fresh(path, true, true, false)
		if err != nil || !ok {
			t.Fatal(path, ok, err)
		}
		defer func() { _ = remove(t.Context()) }()
		if err := errors.Join(os.MkdirAll(at+"/.git", 0o755), os.WriteFile(at+"/.git/index", nil, 0o600), os.WriteFile(at+"/cache", nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	a.must("echo agent >f; ls", "f")
	if why, err := a.KeepFresh(t.Context(), "t-k"); why != nil || err != nil {
		t.Fatal(why, err)
	}
	if err := a.Attach("c", []byte("known")); err != nil {
		t.Fatal(err)
	}
	at, remove, _, err := a.Fresh(a.tree, true, true, false)
	if err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(at); err != nil || len(names) != 2 || names[0].Name() != "cache" || names[1].Name() != "f" {
		t.Errorf("%v, %v", names, err)
	}
	if err := remove(t.Context()); err != nil {
		t.Error(err)
	}
	b := w.box("b")
	b.lay(want("k"))
	b.must("ls -A; cat f; ls $HOME ../tmp", ".git\ncache\nf\nsetup\n../tmp:\n\n"+b.home+":\ncache\nimage")
	if fits, same := b.Matches(); !fits || !same || !b.under.Warm || string(b.Attached("c")) != "known" || b.Attached("d") != nil {
		t.Errorf("%v, %v, %+v", fits, same, b.under)
	}
}
