package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type volumes struct {
	runtime.Runtime
	names []string
}

var _ runtime.Volumes = (*volumes)(nil)

func (v *volumes) Volumes(context.Context, map[string]string) ([]runtime.Volume, error) {
	return nil, nil
}

func (v *volumes) RemoveVolume(_ context.Context, name string) error {
	i := slices.Index(v.names, name)
	if i < 0 {
		return runtime.ErrNotFound
	}
	v.names = slices.Delete(v.names, i, i+1)
	return nil
}

// TestGcCache: the cache is every box's, also of other users of the engine.
func TestGcCache(t *testing.T) {
	t.Parallel()
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"x": func(b *runtimetest.Box) int { <-b.Killed; return 0 }})
	v := &volumes{Runtime: fake, names: []string{runtime.CacheVolume, "mine"}}
	named := "" // by the environment
	var out, errs bytes.Buffer
	dir := t.TempDir()
	a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}, app.Env{
		Getenv: func(k string) string {
			return map[string]string{"SANDBOX_AGENT_STATE_DIR": dir, "SANDBOX_AGENT_CACHE_VOLUME": named}[k]
		},
		OpenEngine: func() (*app.Backend, error) { return &app.Backend{Engine: v}, nil },
	})
	id, err := fake.Run(t.Context(), runtime.ContainerSpec{Name: "theirs", Image: "x", Labels: map[string]string{workorder.LabelTask: "T-A1B2C3D4", workorder.LabelOwner: "else"}}, io.MultiReader())
	if err != nil {
		t.Fatal(err)
	}
	if code := Main(t.Context(), a, []string{"gc", "--cache"}); code == 0 || !strings.Contains(errs.String(), "theirs") || len(v.names) != 2 {
		t.Errorf("exit %d, %s, %v", code, errs.String(), v.names)
	}
	if err := fake.Stop(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"gc", "gc --cache --dry-run"} {
		if code := Main(t.Context(), a, strings.Fields(args)); code != 0 || len(v.names) != 2 {
			t.Errorf("%s: exit %d, %v", args, code, v.names)
		}
	}
	if code := Main(t.Context(), a, []string{"gc", "--cache"}); code != 0 || !slices.Equal(v.names, []string{"mine"}) {
		t.Errorf("exit %d, %v", code, v.names)
	}
	out.Reset()
	if code := Main(t.Context(), a, []string{"gc", "--cache"}); code != 0 || out.String() != "nothing to do\n" {
		t.Errorf("exit %d, %s", code, out.String())
	}
	named = "mine"
	if code := Main(t.Context(), a, []string{"gc", "--cache"}); code != 0 || len(v.names) != 0 {
		t.Errorf("exit %d, %v", code, v.names)
	}
}

// TestGcAttempts: of former attempts the boxes that were kept stay, and their
// output always; of a task that somebody holds everything stays.
func TestGcAttempts(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	r.want(workorder.ExitTimeout, "", create("--keep")...)
	r.want(workorder.ExitTimeout, "", "continue", tid)
	st := taskstore.New(r.state)
	rec, err := st.Load(tid)
	if err != nil {
		t.Fatal(err)
	}
	rec.PastAttempts[0].Keep = false
	if err := st.Save(rec); err != nil {
		t.Fatal(err)
	}
	lock, err := st.TryLock(tid)
	if err != nil {
		t.Fatal(err)
	}
	r.without(0, "sandbox-agent-", "gc")
	lock.Unlock()
	r.want(0, "sandbox-agent-"+tid, "gc", "--dry-run")
	r.want(0, "sandbox-agent-"+tid, "gc")
	if n := r.fake.Count(); n != 0 {
		t.Errorf("%d boxes are left", n)
	}
	r.want(0, "attempts/1", "result", tid, "--attempt", "1", "--path")
	r.want(0, "timeout", "result", tid, "--attempt", "1")
}

// TestGcForgottenAttempt: the box of an attempt that nobody remembers is found
// though its task is known, the next one's is left alone.
func TestGcForgottenAttempt(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	r.want(workorder.ExitTimeout, "", create("--keep")...)
	if err := os.RemoveAll(filepath.Join(r.state, tid)); err != nil {
		t.Fatal(err)
	}
	r.want(workorder.ExitTimeout, "", "continue", tid, "-p", "P", "--keep")
	r.want(0, "sandbox-agent-"+tid+"\n", "gc")
	r.without(0, "sandbox-agent-", "gc")
	if n := r.fake.Count(); n != 1 {
		t.Errorf("%d boxes are left, want the kept one", n)
	}
}

// builtImages are the images of an engine; what is removed is noted.
type builtImages struct {
	fakeImages
	list    []provision.BuiltImage
	removed []string
}

func (i *builtImages) List(context.Context) ([]provision.BuiltImage, error) { return i.list, nil }

func (i *builtImages) Remove(_ context.Context, tag string) error {
	i.removed = append(i.removed, tag)
	return nil
}

// TestGcImages: only what this program tagged goes, by its tags. A user's image that was built from ours has our labels.
func TestGcImages(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	i := &builtImages{list: []provision.BuiltImage{
		{ID: "1", Name: "sandbox-agent:dev-1", Tags: []string{"sandbox-agent:dev-1"}, Own: true, Current: true},
		{ID: "2", Name: "sandbox-agent:dev-2", Tags: []string{"sandbox-agent:dev-2", "sandbox-agent:v1.0.0-2"}, Own: true},
		{ID: "3", Tags: []string{"mine:1"}},
		{ID: "4", Name: "sandbox-agent:dev-4", Tags: []string{"sandbox-agent:dev-4", "kept:1"}},
		{ID: "5", Name: "sandbox-agent:dev-5", Tags: []string{"sandbox-agent:dev-5"}, Own: true, Used: true},
		{ID: "sha256:6666666666666666"},
		{ID: "7", Tags: []string{"sandbox-agent/prepared:7"}, Prepared: "jq"},
		{ID: "8", Tags: []string{"sandbox-agent/prepared:8"}, Prepared: "jq", Old: true},
		{ID: "9", Tags: []string{"sandbox-agent/prepared:9"}, Prepared: "jq", Old: true, Used: true},
		{ID: "10", Prepared: "jq", Old: true},
	}}
	r.images = i
	r.want(0, "sandbox-agent:dev-2", "gc", "--images", "--dry-run")
	if i.removed != nil {
		t.Errorf("a rehearsal removed %q", i.removed)
	}
	r.want(0, "sandbox-agent:dev-2", "gc", "--images")
	if want := []string{"sandbox-agent:dev-2", "sandbox-agent:v1.0.0-2", "sandbox-agent/prepared:8", "10"}; !slices.Equal(i.removed, want) {
		t.Errorf("removed %q, want %q", i.removed, want)
	}
	for _, said := range []string{"sandbox-agent:dev-2, sandbox-agent:v1.0.0-2", "mine:1", "666666666666 ", "by a container"} {
		r.want(0, said, "image", "ls")
	}
}
