package salvage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// folder is a stopped box whose /workspace is a folder.
type folder struct {
	dir   string
	extra []tar.Header // entries that no file system has
}

func (f folder) CopyOut(_ context.Context, _, name string) (io.ReadCloser, error) {
	rel, ok := strings.CutPrefix(name, "/workspace")
	at := filepath.Join(f.dir, rel)
	if _, err := os.Stat(at); !ok || err != nil {
		return nil, runtime.ErrNotFound
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := filepath.WalkDir(at, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			link, err = os.Readlink(p)
		}
		h, herr := tar.FileInfoHeader(info, link)
		if err := errors.Join(err, herr); err != nil {
			return err
		}
		h.Name = path.Join(path.Base(name), strings.TrimPrefix(p, at))
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		content, err := os.ReadFile(p)
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	})
	for i := range f.extra {
		err = errors.Join(err, w.WriteHeader(&f.extra[i]))
	}
	return io.NopCloser(&b), errors.Join(err, w.Close())
}

// work is a box whose branch has commits that are nowhere else, in a pack and loose.
func work(t *testing.T) (dir, base, head string) {
	t.Helper()
	dir = t.TempDir()
	gittest.Git(t, dir, "init", "-q", "-b", "main")
	commit := func(name string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		gittest.Git(t, dir, "add", name)
		gittest.Git(t, dir, "commit", "-qm", name)
		return gittest.Git(t, dir, "rev-parse", "HEAD")
	}
	base = commit("base")
	gittest.Git(t, dir, "update-ref", "refs/remotes/origin/main", base)
	gittest.Git(t, dir, "checkout", "-q", "-b", "agent/T-1")
	commit("packed")
	gittest.Git(t, dir, "gc", "-q")
	return dir, base, commit("loose")
}

func TestCommits(t *testing.T) {
	t.Parallel()
	dir, base, head := work(t)
	marker := filepath.Join(t.TempDir(), "ran")
	gittest.Git(t, dir, "update-ref", "refs/remotes/wt/feature", head) // a clone of the agent's own is nowhere else
	gittest.Git(t, dir, "config", "core.alternateRefsCommand", "touch "+marker)
	gittest.Git(t, dir, "config", "core.fsmonitor", "touch "+marker)
	box := folder{dir: dir, extra: []tar.Header{
		{Typeflag: tar.TypeReg, Name: ".git/objects/info/alternates", Mode: 0o600},
		{Typeflag: tar.TypeReg, Name: ".git/objects/../../escaped", Mode: 0o600},
		{Typeflag: tar.TypeSymlink, Name: ".git/objects/aa", Linkname: "/etc"},
	}}
	for name, w := range map[string]Work{
		"by the result":     {Branch: "agent/T-1", Head: head, Known: []string{base}},
		"by its repository": {Branch: "agent/T-1", Base: "main"},
		"by its HEAD":       {Branch: "agent/T-2", Base: "main"},
		"by another remote": {Branch: "agent/T-1", Base: "other"},
	} {
		out := t.TempDir()
		bundle := filepath.Join(out, "work.bundle")
		// The box was killed while it made its own.
		if err := os.WriteFile(bundle+".lock", []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if last, err := Commits(t.Context(), box, "x", w, bundle); err != nil || last != head {
			t.Fatalf("%s: %s %v", name, last, err)
		}
		if left, _ := os.ReadDir(out); len(left) != 1 {
			t.Errorf("%s: left behind: %v", name, left)
		}
		there := t.TempDir()
		gittest.Git(t, there, "init", "-q", "--bare")
		gittest.Git(t, there, "fetch", "-q", dir, "main")
		gittest.Git(t, there, "fetch", "-q", bundle, "refs/heads/*:refs/heads/*")
		if got := gittest.Git(t, there, "rev-parse", w.Branch); got != head {
			t.Errorf("%s: the bundle has %s, want %s", name, got, head)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a setting of the box's repository ran a program here")
	}
	for name, w := range map[string]Work{
		"known":          {Branch: "agent/T-1", Known: []string{head}},
		"known as head":  {Branch: "agent/T-1", Head: base, Known: []string{base}},
		"no such commit": {Branch: "agent/T-1", Head: "x"},
	} {
		if _, err := Commits(t.Context(), box, "x", w, filepath.Join(t.TempDir(), "b")); !errors.Is(err, ErrNoWork) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Commits(t.Context(), folder{dir: t.TempDir()}, "x", Work{Branch: "b"}, filepath.Join(t.TempDir(), "b")); !errors.Is(err, ErrNoWork) {
		t.Errorf("no repository: %v", err)
	}
	missing := strings.Repeat("1", 40)
	if _, err := Commits(t.Context(), box, "x", Work{Branch: "b", Head: missing}, filepath.Join(t.TempDir(), "b")); err == nil || errors.Is(err, ErrNoWork) {
		t.Errorf("a commit that is missing: %v", err)
	}
}

// A store whose objects are not what their names say is no way into a clone.
func TestForgedObject(t *testing.T) {
	t.Parallel()
	dir, _, head := work(t)
	blob := gittest.Git(t, dir, "rev-parse", head+":loose")
	if err := os.WriteFile(filepath.Join(dir, "forged"), []byte("forged"), 0o600); err != nil {
		t.Fatal(err)
	}
	forged := gittest.Git(t, dir, "hash-object", "-w", "--", filepath.Join(dir, "forged"))
	content, err := os.ReadFile(filepath.Join(dir, ".git/objects", forged[:2], forged[2:]))
	at := filepath.Join(dir, ".git/objects", blob[:2], blob[2:])
	if err := errors.Join(err, os.Remove(at), os.WriteFile(at, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "b")
	if _, err := Commits(t.Context(), folder{dir: dir}, "x", Work{Branch: "agent/T-1"}, bundle); err != nil {
		return // refused here
	}
	there := t.TempDir()
	gittest.Git(t, there, "init", "-q", "--bare")
	gittest.Git(t, there, "fetch", "-q", dir, "main")
	if err := (git.Repo{Dir: there, Bare: true}).Run(t.Context(), "fetch", "-q", "--", bundle, "refs/heads/*:refs/heads/*"); err == nil {
		t.Error("a forged object was taken")
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir, _, _ := work(t)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, "sub/new"), []byte("new"), 0o600), os.Symlink("/etc/passwd", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "evidence", "a.tar.gz")
	if err := Files(t.Context(), folder{dir: dir, extra: []tar.Header{{Typeflag: tar.TypeChar, Name: "workspace/device"}, {Typeflag: tar.TypeLink, Name: "workspace/second", Linkname: "workspace/loose"}, {Typeflag: tar.TypeLink, Name: "workspace/out", Linkname: "workspace/../etc/shadow"}}}, "x", archive); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	slices.Sort(names)
	if want := []string{"./base", "./link", "./loose", "./packed", "./second", "./sub", "./sub/new"}; !slices.Equal(names, want) {
		t.Errorf("kept %v, want %v", names, want)
	}
}
