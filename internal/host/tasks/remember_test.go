package tasks

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestRemember(t *testing.T) {
	t.Parallel()
	was := map[string]string{"branch": "main", "allow": "a.example", "network": "restricted"}
	detected := func() *taskstore.Record {
		return &taskstore.Record{TaskID: id, Dir: "/out/" + id, Request: taskstore.Request{ProjectBy: taskstore.Detected, Overrides: was}}
	}
	rec := func(file string) *taskstore.Record {
		return &taskstore.Record{TaskID: id, Dir: "/out/" + id, Request: taskstore.Request{ProjectFile: file, ProjectBy: "named", Overrides: was}}
	}
	for name, c := range map[string]struct {
		verb Verb
		rec  *taskstore.Record
		said GivenFlags
		file string
		hold []string
		code int
	}{
		"nothing is said":         {Continue, rec("/p"), GivenFlags{}, "/p", []string{"branch", "allow", "network"}, 0},
		"the same folder":         {Continue, rec("/p"), GivenFlags{Out: "/out"}, "/p", []string{"branch", "allow", "network"}, 0},
		"another folder":          {Continue, rec("/p"), GivenFlags{Out: "/other"}, "", nil, workorder.ExitUsage},
		"another project":         {Continue, rec("/p"), GivenFlags{Given: map[string]string{"project": "--project"}}, "", []string{"branch", "allow", "network"}, 0},
		"another branch":          {Continue, rec("/p"), GivenFlags{Given: map[string]string{"branch": "--branch"}}, "/p", []string{"allow", "network"}, 0},
		"a mode without rules":    {Continue, rec("/p"), GivenFlags{Given: map[string]string{"network": "--network"}, Network: "open"}, "/p", []string{"branch"}, 0},
		"the mode that has rules": {Continue, rec("/p"), GivenFlags{Given: map[string]string{"network": "--network"}, Network: "restricted"}, "/p", []string{"branch", "allow"}, 0},
		"no project is recorded":  {Revise, rec(""), GivenFlags{}, "", nil, workorder.ExitNoProject},
		"it was detected":         {Continue, detected(), GivenFlags{}, "", []string{"branch", "allow", "network"}, 0},
		"detected, to revise":     {Revise, detected(), GivenFlags{}, "", []string{"branch", "allow", "network"}, 0},
		"detected, to rebase":     {Rebase, detected(), GivenFlags{}, "", []string{"branch", "allow", "network"}, 0},
		"it is given instead":     {Revise, rec(""), GivenFlags{Given: map[string]string{"project": "--project"}}, "", []string{"branch", "allow", "network"}, 0},
		"or found by create":      {Create, rec(""), GivenFlags{}, "", []string{"branch", "allow", "network"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Remember(c.verb, c.rec, c.said)
			if c.code != 0 {
				if exiterr.Code(err) != c.code {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			want := map[string]string{}
			for _, flag := range c.hold {
				want[flag] = was[flag]
			}
			if err != nil || got.ProjectFile != c.file || !maps.Equal(got.Overrides, want) || (got.ProjectBy == "named") != (c.file != "") {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestPullOf(t *testing.T) {
	t.Parallel()
	known := &taskstore.Record{TaskID: id, Dir: t.TempDir()}
	b, err := json.Marshal(workorder.Result{TaskID: id, PR: &workorder.PR{Number: 7}})
	if err == nil {
		err = os.WriteFile(filepath.Join(known.Dir, workorder.ResultFile), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rec  *taskstore.Record
		said int
		file bool
		want int
		code int
	}{
		"it is said":               {known, 3, false, 3, 0},
		"it is recorded":           {known, 0, false, 7, 0},
		"a file needs none":        {nil, 0, true, 0, 0},
		"a file beside it":         {nil, 3, true, 3, 0},
		"none was opened":          {&taskstore.Record{TaskID: id}, 0, false, 0, workorder.ExitUsage},
		"the task is unknown here": {nil, 0, false, 0, workorder.ExitNotFound},
	} {
		if got, err := PRNumber(id, c.rec, c.said, c.file); got != c.want || c.code == 0 != (err == nil) || err != nil && exiterr.Code(err) != c.code {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}

func TestCheckBranch(t *testing.T) {
	t.Parallel()
	for branch, ok := range map[string]bool{"": true, "agent/" + id: true, "agent/" + id + "-x": true, "main": false, "agent/T-00000000-x": false} {
		if err := (Request{Task: id, Branch: branch}).CheckBranch(); (err == nil) != ok {
			t.Errorf("%q: %v", branch, err)
		}
	}
}
