package branch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// Commands that end while another is saved share one save, and each is noted.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	const most = 12
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	var runs atomic.Int32
	in := func(ctx context.Context, argv []string, in io.Reader, out io.Writer) error {
		if runs.Add(1) == 1 {
			for { // the others wait for this one
				waiting, err := filepath.Glob(filepath.Join(b.dir, queueDir, "dev", "*"+suffixOf))
				if err != nil || len(waiting) == most {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		return p.in(ctx, argv, in, out)
	}
	var all sync.WaitGroup
	for i := range most {
		all.Go(func() {
			p.do(fmt.Sprintf("echo 1 >n%d", i))
			s, err := b.In(in, p.dir).Save(t.Context(), "", CommandRecord{Command: fmt.Sprint("echo ", i), Started: time.Now()})
			if err != nil || gittest.Git(t, b.dir, "cat-file", "-t", fmt.Sprintf("%s:n%d", b.Head(t.Context()), i)) != "blob" {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	all.Wait()
	if n := runs.Load(); n > 2 {
		t.Errorf("%d saves", n)
	}
	log, err := b.Log(t.Context())
	ran := map[string]bool{}
	for _, e := range log {
		for _, r := range e.Ran {
			ran[r.Command] = true
		}
	}
	if len(ran) != most || err != nil {
		t.Errorf("%v, %v", ran, err)
	}
}

// What a failed save did not note, the next one does, unless the sandbox is another by then.
func TestNotedLater(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	fail := func(context.Context, []string, io.Reader, io.Writer) error { return errors.New("lost") }
	ran := func(in ExecFunc, command string) {
		t.Helper()
		if _, err := b.In(in, p.dir).Save(t.Context(), "", CommandRecord{Command: command, Started: time.Now()}); (err == nil) == (command == "fails") {
			t.Error(err)
		}
	}
	p.do("echo 2 >f")
	ran(fail, "fails")
	ran(p.in, "works")
	log, err := b.Log(t.Context())
	if err != nil || len(log[0].Ran) != 2 || log[0].Ran[0].Command != "fails" {
		t.Errorf("%+v, %v", log, err)
	}
	ran(fail, "fails")
	if err := b.Cloned(t.Context(), gittest.Git(t, repo, "rev-parse", "main")); err != nil {
		t.Fatal(err)
	}
	ran(p.in, "works")
	if log, err = b.Log(t.Context()); err != nil || len(log[0].Ran) != 3 {
		t.Errorf("%+v, %v", log, err)
	}
}
