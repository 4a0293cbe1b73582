package tasks

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Said are the user's own settings of this run.
type Said struct {
	Given   map[string]string // the given flags, each with its source
	Out     string            // the absolute path of the output folder; empty if not given
	Network string
}

func (s Said) given(flag string) bool { _, given := s.Given[flag]; return given }

// Remember is the part of the last attempt's request that this command does not replace. An empty project file means the
// given one, the one that is found, or for a detected project none.
func Remember(verb Verb, rec *store.Record, said Said) (store.Request, error) {
	if said.Out != "" && filepath.Join(said.Out, rec.TaskID) != rec.Dir {
		return store.Request{}, fault.New(workorder.ExitUsage, fmt.Errorf("the output of %s lies in %s: all attempts of a task lie together, leave out --out", rec.TaskID, rec.Dir), "")
	}
	was := store.Request{Overrides: Overrides(rec.Request.Overrides, said)}
	switch {
	case said.given("project"):
	case rec.Request.ProjectBy == store.Detected:
		was.ProjectBy = store.Detected
	case rec.Request.ProjectFile != "":
		was.ProjectFile, was.ProjectBy = rec.Request.ProjectFile, rec.Request.ProjectBy
	case verb != Create:
		return store.Request{}, fault.New(workorder.ExitNoProject, fmt.Errorf("the project file of task %s is not recorded", rec.TaskID), GiveProject)
	}
	return was, nil
}

// GiveProject is the hint for a task whose project cannot be read.
const GiveProject = "give the project: --project"

// Overrides are the flags of an earlier command that still hold for this one.
func Overrides(was map[string]string, said Said) map[string]string {
	hold := map[string]string{}
	for flag, value := range was {
		switch {
		case said.given(flag):
		case flag == "allow" && said.given("network") && said.Network != string(workorder.NetworkRestricted): // that mode has no rules
		default:
			hold[flag] = value
		}
	}
	return hold
}

// CheckBranch refuses a branch that cannot be the task's.
func (a Asked) CheckBranch() error {
	if a.Branch != "" && !workorder.OwnBranch(a.Task, a.Branch) {
		return fault.New(workorder.ExitUsage, fmt.Errorf("--target-branch %s cannot be the branch of %s: its name begins with agent/%s", a.Branch, a.Task, a.Task), "")
	}
	return nil
}

// UnknownHere is the error for a task without a record here; it names what is needed to find the task on its remote.
func UnknownHere(id, give string) error {
	return fault.New(workorder.ExitNotFound, fmt.Errorf("task %s is not known on this machine", id),
		"`sandbox-agent ps --all` lists the tasks of this machine; if another one began it, give "+give)
}

// PullOf decides which pull request's feedback a revise takes: the given one, else the recorded one. It is 0 if the feedback is
// in a file. rec is nil for a task that this machine does not know.
func PullOf(id string, rec *store.Record, said int, file bool) (int, error) {
	switch {
	case said != 0 || file:
		return said, nil
	case rec == nil: // its pull request is recorded only on the machine that began it
		return 0, UnknownHere(id, "its pull request and project: --pr N --project P")
	}
	if recorded := pullNumber(rec); recorded != 0 {
		return recorded, nil
	}
	return 0, fault.New(workorder.ExitUsage, errors.New("the pull request of task "+id+" is not known here"),
		"give it: --pr N; or feedback of your own: --feedback-file; `sandbox-agent pr open "+id+"` opens one")
}
