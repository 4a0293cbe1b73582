package proof_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/runner/proof"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// places make rooms of which a file stands for what they take: as long as one with a file "hog" is there, the others have less.
type places struct {
	home   string
	user   *proc.Credential
	steps  []string
	hogs   int   // held for good
	refuse error // of Remove
	lacks  []string
	over   string // a folder that an earlier setup left in the work tree
}

type place struct {
	*places
	dir  string
	over bool
}

func (p *places) Room(_ context.Context, _ git.Repo, _ string, bare bool) (proof.Room, error) {
	p.steps = append(p.steps, "room")
	dir, err := os.MkdirTemp(p.home, "proof.")
	if err != nil {
		return nil, err
	}
	err = errors.Join(os.Mkdir(dir+"/tree", 0o755), os.Mkdir(dir+"/home", 0o755))
	if p.over != "" && !bare {
		err = errors.Join(err, os.Mkdir(dir+"/tree/"+p.over, 0o755))
	}
	return &place{places: p, dir: dir, over: p.over != "" && !bare}, err
}

func (p *place) StartState() proof.StartState {
	return proof.StartState{Tree: p.dir + "/tree", Home: p.dir + "/home", SetupRestored: p.over}
}

func (p *place) User() *proc.Credential      { return p.user }
func (p *place) Outside(path string) string  { return path }
func (p *place) Enter(context.Context) error { p.steps = append(p.steps, "enter"); return nil }
func (p *place) Missing() []string           { return p.lacks }

func (p *place) FreeResources() (proof.FreeResources, error) {
	f := proof.FreeResources{Disk: 1000, Inodes: 1000, Memory: 1000}
	hogs, err := filepath.Glob(p.home + "/proof.*/*/hog")
	f.Memory -= int64(300 * (len(hogs) + p.hogs))
	return f, err
}

func (p *place) Remove(context.Context) error {
	p.steps = append(p.steps, "leave")
	if p.refuse != nil {
		return p.refuse
	}
	return os.RemoveAll(p.dir)
}

// A setup command that was not made to run twice in one work tree is no reason for an unproven side.
func TestSetupThatCannotRunTwice(t *testing.T) {
	t.Parallel()
	for _, found := range []bool{false, true} {
		b := newBox(t, map[string]string{"f": "1\n"})
		b.Order.Setup = []string{"mkdir made", "echo x >made/x"}
		b.Order.Found = found
		b.validate("test", "cat made/x && grep -q 2 f")
		p := &places{home: b.Home, over: "made"}
		b.Rooms = p
		got := b.prove(t.Context(), b.commit(map[string]string{"f": "2\n"}))
		if len(got.Reasons) != 0 || got.Checks[0].Transition != workorder.TransitionFixed {
			t.Errorf("%+v", got)
		}
		// Each side finds it out once; base's second room is bare from the beginning.
		twice := []string{"room", "enter", "leave", "room", "enter", "leave"}
		if want := slices.Concat(twice, twice, []string{"room", "enter", "leave"}); !slices.Equal(p.steps, want) {
			t.Errorf("%q", p.steps)
		}
		// What fails in an empty work tree, too, is the commit's.
		b.Order.Setup = []string{"mkdir made made"}
		if got := b.prove(t.Context(), b.commit(map[string]string{"f": "3\n"})); !found && !got.Reasons.Has(workorder.ReasonSetup) {
			t.Errorf("%+v", got)
		}
	}
}

// Base's space is free again before head begins. A side with less space is not judged, since it could fail
// for lack of it.
func TestNoSideStarvesTheOther(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"f": "1\n"})
	b.validate("test", "grep -q 2 f && touch hog")
	head := b.commit(map[string]string{"f": "2\n"})
	p := &places{home: b.Home}
	b.Rooms = p
	got := b.prove(t.Context(), head)
	if c := got.Checks[0]; c.Transition != workorder.TransitionFixed || len(got.Reasons) != 0 {
		t.Errorf("%+v", got)
	}
	// Base, head, and base once more.
	want := []string{"room", "enter", "leave", "room", "enter", "leave", "room", "enter", "leave"}
	if !slices.Equal(p.steps, want) {
		t.Errorf("%q", p.steps)
	}
	if c := got.Checks[0]; c.Head == nil || c.Base == nil {
		t.Errorf("%+v", c)
	}
	if _, err := os.Stat(filepath.Join(b.OutDir, "logs/proof-head-test-again.log")); err != nil {
		t.Errorf("head was not repeated: %v", err)
	}

	for name, c := range map[string]struct {
		p    *places
		code workorder.ReasonCode
	}{
		"what cannot be removed": {&places{refuse: errors.New("busy")}, workorder.ReasonRemains},
		"what is missing":        {&places{hogs: 0, lacks: []string{"the image's /opt/tool was changed"}}, workorder.ReasonRoomNotClean},
	} {
		c.p.home = b.Home
		b.Rooms = c.p
		got, err := proof.Run(t.Context(), b.Config, b.base, head)
		if err != nil || len(got.Reasons.Without(c.code)) != len(got.Reasons)-1 {
			t.Errorf("%s: %v, %q", name, err, got.Reasons)
		}
		if c.p.refuse != nil && got.Checks[0].Head != nil {
			t.Errorf("%s: head ran", name)
		}
	}
}

// A program took memory while base ran and keeps it.
func TestAStarvedHeadIsNotJudged(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"f": "1\n"})
	b.validate("test", "grep -q 2 f")
	head := b.commit(map[string]string{"f": "2\n"})
	p := &places{home: b.Home}
	b.Rooms = p
	shell := b.Shell
	b.Shell = func(ctx context.Context, c proof.CommandLine) proof.Outcome { p.hogs = 1; return shell(ctx, c) }
	got := b.prove(t.Context(), head)
	if c := got.Checks[0]; c.Head != nil || c.Transition == workorder.TransitionFixed || !got.Reasons.Has(workorder.ReasonNoCleanRoom) {
		t.Errorf("%+v", got)
	}
}
