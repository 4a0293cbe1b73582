package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	c, dir := newFiles(t)
	ctx := t.Context()
	must(t, c.Files().MakeDir(ctx, wireclient.FileQuery{Path: "w/sub", Parents: true}))
	flat, err := c.Files().Watch(ctx, at("w"))
	must(t, err)
	all, err := c.Files().Watch(ctx, wireclient.FileQuery{Path: dir + "/./w", All: true})
	must(t, err)
	p := func(name string) string { return filepath.Join(dir, "w", name) }
	// until reads changes until all of some were told, or what is watched is gone.
	until := func(w *wireclient.Watch, got map[string]bool, wanted ...string) {
		for !slices.ContainsFunc(wanted, func(what string) bool { return !got[what] }) {
			change, err := w.Next() // go test's own deadline ends it
			if err != nil {
				t.Fatalf("%v: %v were told, of %q", err, got, wanted)
			}
			what := fmt.Sprintf("%s %s", change.Type, change.Path)
			if change.IsDir {
				what += "/"
			}
			got[what] = true
		}
	}
	must(t, os.WriteFile(p("a\xff"), []byte("x"), 0o644), os.Chmod(p("a\xff"), 0o600), os.Rename(p("a\xff"), p("b")),
		os.WriteFile(p("sub/c"), nil, 0o644), os.Remove(p("sub/c")),
		os.MkdirAll(p("new/deep"), 0o755), os.WriteFile(p("new/deep/d"), []byte("d"), 0o644), os.Rename(p("new"), p("moved")))
	top := []string{"made a\xff", "written a\xff", "rights a\xff", "gone a\xff", "made b", "made new/", "gone new/", "made moved/"}
	below := map[string]bool{}
	until(all, below, append(top, "made sub/c", "gone sub/c", "made moved/deep/", "made moved/deep/d")...)
	must(t, os.WriteFile(p("moved/deep/e"), nil, 0o644))
	until(all, below, "made moved/deep/e")
	must(t, os.RemoveAll(dir+"/w"))
	last := []string{"gone sub/", "gone b", "gone moved/", "gone "}
	until(all, below, append(last, "gone moved/deep/", "gone moved/deep/e")...)
	got := map[string]bool{}
	until(flat, got, append(top, last...)...)
	if got["made sub/c"] {
		t.Error("a folder below was watched")
	}
	for _, w := range []*wireclient.Watch{flat, all} {
		for err = error(nil); err == nil; {
			_, err = w.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("the end of what is gone: %v", err)
		}
		must(t, w.Close())
	}
	// More folders than can be watched are told of.
	for i := range wire.MaxWatched {
		must(t, os.MkdirAll(filepath.Join(dir, "many", strconv.Itoa(i)), 0o755))
	}
	many, err := c.Files().Watch(ctx, wireclient.FileQuery{Path: "many", All: true})
	must(t, err)
	defer many.Close()
	if change, err := many.Next(); err != nil || change.Type != wire.ChangeOverflow {
		t.Errorf("%+v, %v", change, err)
	}
	if _, err := c.Files().Watch(ctx, at("none")); code(err) != wire.CodeNotFound {
		t.Errorf("watch nothing: %v", err)
	}
	stopped, cancel := context.WithCancel(ctx)
	quiet, err := c.Files().Watch(stopped, at("/"))
	must(t, err)
	cancel()
	if _, err := quiet.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("a watch that was given up: %v", err)
	}
}

// The process for files is there again when somebody has killed it, and goes when nobody needs it.
func TestFilesProcess(t *testing.T) {
	t.Parallel()
	c, _ := newFiles(t)
	pid := func() int {
		for { // a request that comes while it dies fails; go test's own deadline ends it
			stat, err := content(t, c, "/proc/self/stat")
			if err != nil {
				continue
			}
			first, _, _ := strings.Cut(stat, " ")
			n, err := strconv.Atoi(first)
			must(t, err)
			return n
		}
	}
	first := pid()
	if second := pid(); second != first {
		t.Errorf("%d, then %d", first, second)
	}
	must(t, syscall.Kill(first, syscall.SIGKILL))
	last := pid()
	for last == first {
		last = pid()
	}
	for syscall.Kill(last, 0) == nil {
		time.Sleep(50 * time.Millisecond)
	}
	if again := pid(); again == last {
		t.Error("it is still there")
	}
}
