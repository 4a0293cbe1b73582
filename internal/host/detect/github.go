package detect

import (
	"maps"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// setupSteps is the job that a repository writes for agents (docs.github.com, "customizing the development environment for Copilot
	// coding agent"): its commands are setup.
	setupSteps = "copilot-setup-steps"
	// maxWorkflow bounds one workflow, in bytes; the parser takes more memory than the file.
	maxWorkflow = 256 << 10
	// maxWorkflows bounds how many workflows are read.
	maxWorkflows = 40
	// maxRows bounds the combinations of a matrix.
	maxRows = 256
)

// The parts of a workflow that are read. Of a wrong form they are as if absent.
type (
	workflow struct {
		Name     string    `yaml:"name"`
		On       yaml.Node `yaml:"on"`
		Env      yaml.Node `yaml:"env"`
		Defaults defaults  `yaml:"defaults"`
		Jobs     yaml.Node `yaml:"jobs"`
	}
	defaults struct {
		Run struct {
			Dir string `yaml:"working-directory"`
		} `yaml:"run"`
	}
	workflowJob struct {
		Name     string    `yaml:"name"`
		If       string    `yaml:"if"`
		RunsOn   yaml.Node `yaml:"runs-on"`
		Env      yaml.Node `yaml:"env"`
		Defaults defaults  `yaml:"defaults"`
		Strategy struct {
			Matrix yaml.Node `yaml:"matrix"`
		} `yaml:"strategy"`
		Services yaml.Node      `yaml:"services"`
		Steps    []workflowStep `yaml:"steps"`
		Uses     string         `yaml:"uses"`
	}
	workflowStep struct {
		If       string               `yaml:"if"`
		Uses     yaml.Node            `yaml:"uses"`
		Run      yaml.Node            `yaml:"run"`
		Env      yaml.Node            `yaml:"env"`
		Dir      string               `yaml:"working-directory"`
		With     map[string]yaml.Node `yaml:"with"`
		Tolerant string               `yaml:"continue-on-error"`
	}
	workflowService struct {
		Image   string    `yaml:"image"`
		Env     yaml.Node `yaml:"env"`
		Ports   []string  `yaml:"ports"`
		Options string    `yaml:"options"`
		Command yaml.Node `yaml:"command"`
	}
)

// githubActions reads the workflows of GitHub Actions.
type githubActions struct{ *detector }

func (d githubActions) jobs() (jobs []*job) {
	names := d.names(".github/workflows", "*.yml", "*.yaml")
	if len(names) > maxWorkflows {
		d.omit(Position{File: ".github/workflows"}, "workflows", "only the first %d are read", maxWorkflows)
		names = names[:maxWorkflows]
	}
	flows := d.workflows(names)
	run := map[string]bool{} // for pull requests or the default branch
	for _, n := range sortedKeys(flows) {
		if !flows[n].judges() {
			continue
		}
		run[n] = true
		pairs(&flows[n].Jobs, func(_, value *yaml.Node) {
			var j workflowJob
			_ = value.Decode(&j)
			if file, local := strings.CutPrefix(j.Uses, "./"); local && (&scope{}).holds(j.If) {
				run[path.Clean(file)] = true
			}
		})
	}
	idle := map[string]bool{}
	for _, n := range sortedKeys(flows) {
		w := flows[n]
		pairs(&w.Jobs, func(key, value *yaml.Node) {
			switch {
			case key.Value == setupSteps:
				idle[n] = true
				if j := d.job(n, w, key, value); j != nil {
					d.setupJob(j)
				}
			case run[n]:
				if j := d.job(n, w, key, value); j != nil {
					jobs = append(jobs, j)
				}
			case !idle[n]:
				idle[n] = true
				d.omit(Position{File: n}, n, "it does not run for pull requests or pushes to the default branch")
			}
		})
	}
	return jobs
}

// setupJob takes the job that a repository writes for agents.
func (d githubActions) setupJob(j *job) {
	for _, c := range j.commands {
		if c.why == "" {
			d.steps = append(d.steps, c)
		} else if !nothing.MatchString(c.text) {
			d.omit(c.at, c.text, "%s", c.why)
		}
	}
	for _, t := range j.tools {
		d.hint(hintPipeline, t.At, t.Name, t.Version)
	}
	for _, s := range j.services {
		d.serve(s)
	}
}

// workflows reads workflows by their names.
func (d githubActions) workflows(names []string) map[string]*workflow {
	flows := map[string]*workflow{}
	all := 0
	for _, n := range names {
		f := d.open(n)
		if f != nil {
			all += len(f.text)
		}
		if all > maxAllWorkflows {
			d.omit(Position{File: n}, "workflows", "they are larger than 1 MB together: neither this one nor those after it are read")
			break
		}
		w := &workflow{}
		if f != nil && d.decode(f, w) {
			flows[n] = w
		}
	}
	return flows
}

// pairs calls a function for the entries of a mapping, those of merge keys included.
func pairs(n *yaml.Node, each func(key, value *yaml.Node)) {
	for n.Kind == yaml.AliasNode || n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		} else {
			n = n.Content[0]
		}
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "<<" {
			pairs(n.Content[i+1], each)
			continue
		}
		value := n.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		each(n.Content[i], value)
	}
}

// judges reports whether a workflow runs for pull requests or pushes to the default branch.
func (w *workflow) judges() bool {
	events := []string{"push", "pull_request", "merge_group"}
	switch on := &w.On; on.Kind {
	case yaml.ScalarNode:
		return slices.Contains(events, on.Value)
	case yaml.SequenceNode:
		return slices.ContainsFunc(on.Content, func(n *yaml.Node) bool { return slices.Contains(events, n.Value) })
	}
	found := false
	pairs(&w.On, func(key, value *yaml.Node) {
		var filter struct{ Branches, Tags, Types []string }
		_ = value.Decode(&filter)
		switch {
		case key.Value == "push":
			found = found || (len(filter.Tags) == 0 || len(filter.Branches) > 0) && defaultBranch(filter.Branches)
		case slices.Contains(events, key.Value):
			types := len(filter.Types) == 0 || slices.Contains(filter.Types, "opened") || slices.Contains(filter.Types, "synchronize")
			found = found || types
		}
	})
	return found
}

// defaultBranch reports whether patterns of branches can mean the default branch.
func defaultBranch(patterns []string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		return lazyregexp.New(`^(?:main|master|trunk|develop(?:ment)?|dev|next|default|\*\*?|[0-9v][\w.*-]*)$`).MatchString(p)
	})
}

// job reads a job with one row of its matrix; nil if it does not run on Linux for pull requests or pushes.
func (d githubActions) job(file string, w *workflow, key, value *yaml.Node) *job {
	var in workflowJob
	_ = value.Decode(&in)
	rows, base := matrix(&in.Strategy.Matrix)
	var linux []*scope
	why := "its job does not run on Linux"
	for i, row := range rows {
		s := &scope{matrix: row, extra: i >= base, env: map[string]string{}}
		switch {
		case !s.linux(&in.RunsOn):
		case !s.holds(in.If):
			why = "its job does not run for pull requests: " + in.If
		default:
			linux = append(linux, s)
		}
	}
	at := Position{File: file, Line: key.Line}
	switch {
	case in.Uses != "" && len(linux) == 0:
		d.omit(at, in.Uses, "%s", why)
		return nil
	case in.Uses != "":
		if strings.HasPrefix(in.Uses, "./") {
			return nil
		}
		d.served = d.served || serverAction.MatchString(in.Uses)
		d.omit(at, in.Uses, "it is a workflow of another repository, which is not read")
		return nil
	case len(linux) == 0:
		j := &job{name: key.Value, at: at, aside: true}
		for i := range in.Steps {
			j.leave(file, &in.Steps[i], why)
		}
		return j
	}
	row := sensible(linux)
	name := key.Value
	if label, known, _ := row.fill(in.Name); known && label != "" {
		name += " " + label
	}
	written := expression.ReplaceAllString(in.Name, "")
	j := &job{name: name, at: at, aside: aside(path.Base(file), w.Name, key.Value, written)}
	workflowEnv := d.forTests(file, &w.Env, row, &j.unknown)
	jobEnv := d.forTests(file, &in.Env, row, &j.unknown)
	for _, v := range append(slices.Clone(workflowEnv), jobEnv...) {
		row.env[v.Name] = v.Value
	}
	j.env = append(jobEnv, workflowEnv...)
	pairs(&in.Services, func(name, value *yaml.Node) { d.service(j, file, name, value, row) })
	row.services = map[string]any{}
	for _, s := range j.services {
		ports := map[string]any{}
		for _, p := range s.Ports {
			outer, inner, _ := strings.Cut(p, ":")
			ports[inner] = outer
		}
		row.services[s.Name] = map[string]any{"ports": ports}
	}
	for i := range in.Steps {
		d.step(j, file, w, &in, &in.Steps[i], linux, row)
	}
	if j.elsewhere {
		return nil
	}
	return j
}

// step takes a step of a job, or of an action of the repository.
func (d githubActions) step(j *job, file string, w *workflow, in *workflowJob, st *workflowStep, rows []*scope, row *scope) {
	switch {
	case !row.holds(st.If):
		j.leave(file, st, "its step does not run for pull requests: "+st.If)
	case st.Tolerant == "true":
		j.leave(file, st, "its failure does not count")
	case st.Uses.Value != "":
		d.action(j, file, st, rows, row)
	default:
		d.run(j, file, w, in, st, row)
	}
}

// idleActions have no effect on the code and do not judge it.
var idleActions = lazyregexp.New(`^(?:actions|github|docker|codecov|coverallsapp)/|/(?:setup-|rust-cache|rust-toolchain|action-setup)`)

// leave adds the commands of a step that is left out.
func (j *job) leave(file string, st *workflowStep, why string) {
	left := script(st.Run.Value, ".", Position{File: file, Line: st.Run.Line})
	if uses := st.Uses.Value; uses != "" && (!idleActions.MatchString(uses) || serverAction.MatchString(uses)) {
		left = []command{{text: st.Uses.Value, dir: ".", at: Position{File: file, Line: st.Uses.Line}}}
	}
	for _, c := range left {
		j.commands = append(j.commands, step{command: c, verdict: verdict{kind: kindRefused, why: why}})
	}
}

// linux reports whether a job runs on Linux, as far as its file says.
func (s *scope) linux(runsOn *yaml.Node) bool {
	labels := runsOn.Content
	if runsOn.Kind == yaml.ScalarNode {
		labels = []*yaml.Node{runsOn}
	}
	for _, l := range labels {
		label, _, _ := s.fill(l.Value)
		if lazyregexp.New(`(?i)^(?:windows|macos|mac)|arm|freebsd`).MatchString(label) {
			return false
		}
	}
	return true
}

// run takes the commands of a step.
func (d githubActions) run(j *job, file string, w *workflow, in *workflowJob, st *workflowStep, row *scope) {
	at := Position{File: file, Line: st.Run.Line}
	var needed []Var
	env := d.forTests(file, &st.Env, row, &needed)
	needed = slices.DeleteFunc(needed, func(v Var) bool { return idleVariable.MatchString(v.Name) })
	j.unknown = append(j.unknown, needed...)
	needs := slices.ContainsFunc(needed, func(v Var) bool { return v.Value == reasonSecret })
	dir := "."
	for _, level := range []string{w.Defaults.Run.Dir, in.Defaults.Run.Dir, st.Dir} {
		if filled, known, _ := row.fill(level); level != "" && known {
			dir = within(".", filled)
		} else if level != "" {
			dir = level
		}
	}
	inner := *row
	inner.env = maps.Clone(row.env)
	for _, v := range slices.Backward(j.env) { // steps before this one may have set some
		inner.env[v.Name] = v.Value
	}
	for _, v := range env {
		inner.env[v.Name] = v.Value
	}
	content, secret := d.known(j, file, st, &inner)
	for _, c := range script(content, dir, at) {
		c.env = append(c.env, env...)
		s := step{command: c, secret: secret || needs, foreign: aptSource.MatchString(content)}
		if j.biome != nil && strings.HasPrefix(c.text, "biome ") {
			s.biome, s.install = true, *j.biome
		}
		j.commands = append(j.commands, s)
	}
}

var (
	// setsVariable is a line that sets a variable for the steps after it.
	setsVariable = lazyregexp.New(`^echo ["']?([A-Za-z_]\w*)=([^"'$\x60]*)["']? ?>> ?"?\$\{?GITHUB_ENV\}?"?$`)
	// aptSource adds a source of packages that the sandbox does not have.
	aptSource = lazyregexp.New(`\bapt-key\b|\b(?:add-apt|apt-add)-repository\b|/etc/apt/`)
)

const (
	reasonRun    = "it depends on values that only a run of the pipeline has"
	reasonSecret = "it needs a secret"
	// reasonExpected says why a variable is left out.
	reasonExpected = "with it tests write what they expect, and cannot fail"
)

// known returns the lines of a script that do not depend on a run of the pipeline, and whether a line needs a secret. Variables that the
// script sets for later steps become the job's.
func (d githubActions) known(j *job, file string, st *workflowStep, row *scope) (known string, secret bool) {
	left, lost := *st, false
	content := strings.NewReplacer("${GITHUB_WORKSPACE}", workorder.Workspace, "$GITHUB_WORKSPACE", workorder.Workspace).Replace(st.Run.Value)
	lines := []string{content}
	if !compound.MatchString(content) {
		lines = strings.Split(strings.ReplaceAll(content, "\\\n", " "), "\n")
	}
	for _, line := range lines {
		filled, all, hidden := row.fill(line)
		filled = row.inShell(content, filled)
		secret = secret || hidden
		if m := setsVariable.FindStringSubmatch(filled); all && m != nil {
			j.env = append([]Var{{m[1], m[2], Position{File: file, Line: st.Run.Line}}}, j.env...)
			continue
		}
		if all && !lost && !strings.Contains(filled, "GITHUB_") {
			known += filled + "\n"
			continue
		}
		why := reasonRun
		if hidden {
			why = reasonSecret
		}
		lost = lost || strings.HasPrefix(strings.TrimSpace(line), "cd ")
		left.Run.Value = line
		j.leave(file, &left, why)
	}
	return known, secret
}

// env reads the variables of a workflow, a job or a step. Those without a value are added to others, with the reason.
func (d githubActions) env(file string, n *yaml.Node, row *scope, others *[]Var) (vars []Var) {
	pairs(n, func(key, value *yaml.Node) {
		at := Position{File: file, Line: key.Line}
		filled, known, secret := row.fill(value.Value)
		switch {
		case secret:
			*others = append(*others, Var{key.Value, reasonSecret, at})
		case !known:
			*others = append(*others, Var{key.Value, reasonRun, at})
		case value.Kind == yaml.ScalarNode && (filled != "" || value.Value == ""):
			vars = append(vars, Var{key.Value, filled, at})
		}
	})
	return vars
}
