package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// judge tries the last proposal. Problems are what the agent can correct.
func (w *projectWriter) judge(ctx context.Context) error {
	w.Setup, w.Checks = SetupTimes{}, []ProjectCheck{}
	if w.Problems = w.problemsOfFile(); len(w.Problems) > 0 {
		return nil
	}
	// Files that an unreviewed setup leaves must not reach other tasks.
	cache := " init-" + rand.Text()
	w.Say("setup from scratch, in a new sandbox")
	res, err := w.try(ctx, "cold", cache, func(p *projects.Project) { p.Validate = nil })
	if err != nil || len(w.Problems) > 0 {
		return err
	}
	w.Setup.ColdMS = setupMS(res)
	w.Say("setup with the setup cache, and the checks")
	if res, err = w.try(ctx, "cached", cache, func(*projects.Project) {}); err != nil || res == nil {
		return err
	}
	w.Setup.CachedMS = setupMS(res)
	for _, v := range res.Validation {
		w.Checks = append(w.Checks, ProjectCheck{v.Name, v.Command, v.Passed, v.DurationMS})
	}
	return nil
}

// problemsOfFile checks the text of the last proposal.
func (w *projectWriter) problemsOfFile() (all []ProjectProblem) {
	all = []ProjectProblem{}
	add := func(key, format string, v ...any) {
		all = append(all, ProjectProblem{Key: key, Reason: fmt.Sprintf(format, v...)})
	}
	if strings.TrimSpace(w.Project) == "" {
		add("file", "there is no regular file %s in your last commit, or it is empty", projects.DefaultFile)
		return all
	}
	at := filepath.Join(w.repo.Path, projects.DefaultFile)
	p, err := projects.Parse(at, []byte(w.Project), projects.LoadOptions{Dir: w.repo.Path})
	if list, ok := projects.Problems(err); ok {
		for _, one := range list.Sorted() {
			add("file", "line %d: %s (%s)", one.Line, one.Message, one.Hint)
		}
		return all
	}
	if err != nil {
		add("file", "%v", err)
		return all
	}
	if p.Repo != w.repo.Path || p.Branch != "" {
		add("repo", "it must be `repo: .`, without a branch")
	}
	for _, ask := range resolve.Requests(p) {
		add(ask.Key, "only the user may ask for this (%s): %s", ask.Value, ask.Reason)
	}
	if len(p.Validate) == 0 {
		add("validate", "there is no check")
	}
	for _, c := range p.Validate {
		if detect.TestsNothing(c.Run) {
			add("validate."+c.Name, "it tests nothing: it passes whatever the code is")
		}
	}
	for _, key := range uncommented(w.Project) {
		add(key, "no comment says where it comes from")
	}
	return all
}

// sections have entries that need a comment each.
var sections = []string{"tools", "packages", "services", "env", "setup", "validate", "dev"}

// uncommented lists the entries of a valid project file that have no comment.
func uncommented(file string) (keys []string) {
	var doc yaml.Node
	if yaml.Unmarshal([]byte(file), &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	var visit func(n *yaml.Node)
	visit = func(n *yaml.Node) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			switch {
			case key.Value == "lifecycle":
				visit(value)
			case value.Line == key.Line && value.LineComment != "": // a section on one line
			case slices.Contains(sections, key.Value):
				keys = append(keys, bareEntries(key.Value, value)...)
			}
		}
	}
	visit(doc.Content[0])
	return keys
}

// bareEntries lists the entries of a section without a comment.
func bareEntries(section string, n *yaml.Node) (keys []string) {
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			if !commented(item) {
				keys = append(keys, fmt.Sprintf("%s[%d]", section, i))
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !commented(n.Content[i]) && !commented(n.Content[i+1]) {
				keys = append(keys, section+"."+n.Content[i].Value)
			}
		}
	}
	return keys
}

func commented(n *yaml.Node) bool {
	return n.HeadComment+n.LineComment+n.FootComment != "" || slices.ContainsFunc(n.Content, commented)
}

// try runs a task without an agent in a sandbox of the last proposal. If the proposal is to blame for its end, it adds
// problems.
func (w *projectWriter) try(ctx context.Context, name, cache string, change func(*projects.Project)) (_ *workorder.Result, err error) {
	r, err := w.request(name, w.Project, "Run the checks without a change.", map[string]string{
		"harness": workorder.HarnessCommand, "command": "true",
	})
	if err != nil {
		return nil, err
	}
	_, limited := r.Flags.Values["timeout-minutes"]
	r.Flags.Change = func(p *projects.Project) {
		p.SetupCache, p.NoProof, p.Repair, p.PR, p.Dev, p.Secrets = cache, true, workorder.Repair{}, nil, nil, nil
		p.Strict = new(true) // a check that fails as before is of no use
		if !limited {
			p.TimeoutMinutes = workorder.DefaultTimeout.Minutes()
		}
		change(p)
	}
	out, err := w.Create(ctx, r)
	if out.Task != "" {
		defer func() {
			if gone := w.remove(ctx, out.Task); err == nil {
				err = gone
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	res := out.Result
	switch res.Status {
	case workorder.StatusSuccess, workorder.StatusNoChanges, workorder.StatusUnproven:
	case workorder.StatusFailed, workorder.StatusTimeout:
		w.Problems = problemsOf(res)
	default:
		return nil, exiterr.New(workorder.ExitCode(res.Status, res.EndedBy), fmt.Errorf("try the project file: %s", res.Reasons), "")
	}
	return res, nil
}

// problemsOf are the problems of a try that failed.
func problemsOf(res *workorder.Result) (all []ProjectProblem) {
	for _, v := range res.Validation {
		if !v.Passed {
			all = append(all, ProjectProblem{"validate." + v.Name, fmt.Sprintf("exit code %d on the code without changes", v.ExitCode), v.Tail})
		}
	}
	if len(all) == 0 {
		reason, log, _ := strings.Cut(res.Reasons.String(), "\n")
		all = []ProjectProblem{{string(res.EndedBy), reason, log}}
	}
	for _, s := range res.Services {
		if s.Tail != "" {
			all = append(all, ProjectProblem{"services." + s.Name, s.State, s.Tail})
		}
	}
	return all
}

// setupMS is the time from the first step that prepares the project to the end of setup, in milliseconds.
func setupMS(res *workorder.Result) (ms int64) {
	for _, name := range []workorder.StepName{
		workorder.StepDocker, workorder.StepServices, workorder.StepPackages, workorder.StepTools, workorder.StepSupabase, workorder.StepSetup,
	} {
		if s := res.Step(name); s != nil && s.Status == workorder.StepDone {
			ms += s.DurationMS
		}
	}
	return ms
}
