package surface

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// imported makes two commits, main and main^, of a stream of blobs and of `M` lines for the second.
func imported(tb testing.TB, repo git.Repo, blobs, files string) (base, head string) {
	tb.Helper()
	in := repo
	in.Stdin = blobs + "commit refs/heads/main\ncommitter A <a@example.org> 1700000000 +0000\ndata 1\nx\n\n" +
		"commit refs/heads/main\ncommitter A <a@example.org> 1700000000 +0000\ndata 1\nx\n" + files + "\n"
	if err := in.Run(tb.Context(), "fast-import", "--quiet"); err != nil {
		tb.Fatal(err)
	}
	head, err := repo.Resolve(tb.Context(), "refs/heads/main")
	if err != nil {
		tb.Fatal(err)
	}
	base, err = repo.Resolve(tb.Context(), "refs/heads/main^")
	if err != nil {
		tb.Fatal(err)
	}
	return base, head
}

// peak runs f and returns the largest heap that was seen meanwhile.
func peak(f func()) uint64 {
	runtime.GC()
	var most atomic.Uint64
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if m.HeapAlloc > most.Load() {
				most.Store(m.HeapAlloc)
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	f()
	close(done)
	<-stopped
	return most.Load()
}

// A change of 50,000 files: the workflow among them is found, and what is held is no multiple of the change.
func TestManyFiles(t *testing.T) {
	repo := newRepo(t)
	var b strings.Builder
	n, unread := 50_000, 1
	if testing.Short() {
		n, unread = 2_000, 0 // with the race detector, which has nothing to find here and makes it slow
	}
	var blobs strings.Builder
	for i := range 200 {
		text := fmt.Sprintf("package a\n\nvar x = %d\n%s", i, strings.Repeat("// a line of code that is not odd\n", 100))
		fmt.Fprintf(&blobs, "blob\nmark :%d\ndata %d\n%s\n", i+1, len(text), text)
	}
	for i := range n {
		fmt.Fprintf(&b, "M 100644 :%d src/d%d/f%d.go\n", i%200+1, i/200, i)
	}
	evil := "on: push\njobs:\n  a:\n    steps:\n      - run: ./x\n"
	fmt.Fprintf(&b, "M 100644 inline .github/workflows/z.yml\ndata %d\n%s\n", len(evil), evil)
	base, head := imported(t, repo, blobs.String(), b.String())
	b.Reset()
	var fs []workorder.SurfaceFinding
	start := time.Now()
	used := peak(func() {
		var err error
		if fs, err = Report(t.Context(), repo, base, head); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%s, heap at most %s%s", time.Since(start).Round(time.Millisecond), bytesText(int64(used)), show(fs))
	wellFormed(t, fs)
	if len(fs) != 1+unread || fs[0].Kind != kindWorkflow || unread > 0 && (fs[1].Kind != kindUnread || !strings.Contains(fs[1].Text, "other changed files")) {
		t.Errorf("got%s", show(fs))
	}
	if used > 200<<20 {
		t.Errorf("heap of %s", bytesText(int64(used)))
	}
}

// Large files, one of 100 MB, are not read, and that is said; a program among them is known by its beginning.
func TestLargeFiles(t *testing.T) {
	repo := newRepo(t)
	in := repo
	var b strings.Builder
	for _, f := range []struct {
		name, begin string
		size        int
	}{{"big.js", "let a = 1\n", 100 << 20}, {"tool", "\x7fELF\x02\x01\x01\x00", 8 << 20}, {"film.mp4", "\x00\x00\x00\x18ftypmp42", 8 << 20}, {"package-lock.json", "{", 8 << 20}} {
		fmt.Fprintf(&b, "M 100644 inline %s\ndata %d\n%s%s\n", f.name, f.size, f.begin, strings.Repeat("\n", f.size-len(f.begin)))
	}
	base, head := imported(t, in, "", b.String())
	b.Reset()
	var fs []workorder.SurfaceFinding
	start := time.Now()
	used := peak(func() {
		var err error
		if fs, err = Report(t.Context(), repo, base, head); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%s, heap at most %s%s", time.Since(start).Round(time.Millisecond), bytesText(int64(used)), show(fs))
	got := map[string]string{}
	for _, f := range fs {
		got[f.Path] = f.Kind
	}
	if len(fs) != 3 || got["big.js"] != kindUnread || got["tool"] != kindBinary || got["package-lock.json"] != kindUnread {
		t.Errorf("got%s", show(fs))
	}
	if used > 64<<20 {
		t.Errorf("heap of %s", bytesText(int64(used)))
	}
}
