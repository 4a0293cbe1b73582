package programs

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"

	"github.com/sandbox-agent/sandbox-agent/image"
)

// noArch is one for which no build carries a program.
const noArch = "s390x"

func TestGiven(t *testing.T) {
	f := &Finder{Given: fstest.MapFS{"guest-linux-" + noArch: {Data: []byte("G")}}, Dir: t.TempDir()}
	p, err := f.Guest(t.Context(), noArch, nil)
	if err != nil || unpacked(t, p) != "G" || p.Size != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := f.Entrypoint(t.Context(), noArch, nil); err == nil {
		t.Error("a program that was not given is found elsewhere")
	}
	if _, err := (&Finder{Dir: t.TempDir()}).Guest(t.Context(), noArch, nil); !errors.Is(err, image.ErrNoEntrypoint) {
		t.Errorf("a build of a checkout: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "guest-linux-"+noArch), []byte("E"), 0o600); err != nil {
		t.Fatal(err)
	}
	f = New(nil, func(string) string { return dir }, t.TempDir())
	if b, err := f.Guest(t.Context(), noArch, nil); err != nil || unpacked(t, b) != "E" {
		t.Errorf("%+v, %v", b, err)
	}
}

// proxy serves a module with both programs from files, and makes it the only one that the go command asks.
func proxy(t *testing.T) *source {
	t.Helper()
	m := module.Version{Path: "example.org/programs", Version: "v1.2.3"}
	tree, served := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.org/programs\n\ngo 1.26\n", "cmd/guest/main.go": "package main\n\nfunc main() {}\n", "cmd/entrypoint/main.go": "package main\n\nfunc main( {}\n",
	} {
		write(t, filepath.Join(tree, name), content)
	}
	at := filepath.Join(served, m.Path, "@v", m.Version)
	write(t, at+".mod", "module example.org/programs\n\ngo 1.26\n")
	write(t, at+".info", `{"Version":"v1.2.3"}`)
	z, err := os.Create(at + ".zip")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(modzip.CreateFromDir(z, m, tree), z.Close()); err != nil {
		t.Fatal(err)
	}
	sum, err := dirhash.HashZip(at+".zip", dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOPROXY", "file://"+served)
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-modcacherw -race") // the second is not for programs without cgo
	return &source{m.Path, m.Version, sum}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// Processes that need a program at once build it once, and a program that is there is never replaced.
func TestBuiltOnce(t *testing.T) {
	m, dir := proxy(t), t.TempDir()
	var built atomic.Int32
	guest := func() []byte {
		b, err := (&Finder{Dir: dir}).kept(t.Context(), *m, "guest", runtime.GOARCH, func(string) { built.Add(1) })
		if err != nil || len(b) == 0 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		return b
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { guest() })
	}
	all.Wait()
	if n := built.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(left) != 2 { // the program and the lock
		t.Errorf("%v, %v", left, err)
	}
	t.Setenv("PATH", "") // what is kept needs no toolchain
	guest()
	if _, err := (&Finder{Dir: dir, source: m}).Entrypoint(t.Context(), noArch, nil); !errors.Is(err, image.ErrNoEntrypoint) {
		t.Errorf("without a toolchain: %v", err)
	}
}

func TestNotBuilt(t *testing.T) {
	m := proxy(t)
	other := *m
	other.Sum = "h1:" + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, row := range map[string]struct {
		ctx     context.Context
		m       *source
		program string
	}{
		"other source": {t.Context(), &other, guest}, "does not compile": {t.Context(), m, entrypoint}, "ended": {ended, m, guest},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if b, err := (&Finder{Dir: dir}).kept(row.ctx, *row.m, row.program, runtime.GOARCH, nil); !errors.Is(err, image.ErrNoEntrypoint) {
				t.Errorf("%d bytes, %v", len(b), err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) > 1 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestModule checks what a module proxy would serve: some names are not allowed in a module, and then it cannot be fetched at all.
func TestModule(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Skip("not a checkout: ", err)
	}
	var files []modzip.File
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		files = append(files, tracked{root, name})
	}
	checked, err := modzip.CheckFiles(files)
	if err != nil || len(checked.Valid) < 1000 {
		t.Errorf("%d files are valid: %v", len(checked.Valid), err)
	}
}

type tracked struct{ root, name string }

func (f tracked) Path() string                 { return f.name }
func (f tracked) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(f.root, f.name)) }
func (f tracked) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.root, f.name)) }

func unpacked(t *testing.T, p image.Packed) string {
	t.Helper()
	b, err := p.Unpack()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
