package detect

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
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
	called := map[string]bool{}
	for _, n := range sortedKeys(flows) {
		if !flows[n].judges() {
			continue
		}
		pairs(&flows[n].Jobs, func(_, value *yaml.Node) {
			var j workflowJob
			_ = value.Decode(&j)
			if file, local := strings.CutPrefix(j.Uses, "./"); local && (&scope{}).holds(j.If) {
				called[path.Clean(file)] = true
			}
		})
	}
	for _, n := range sortedKeys(flows) {
		w := flows[n]
		pairs(&w.Jobs, func(key, value *yaml.Node) {
			switch {
			case key.Value == setupSteps:
				if j := d.job(n, w, key, value); j != nil {
					d.setupJob(j)
				}
			case w.judges() || called[n]:
				if j := d.job(n, w, key, value); j != nil {
					jobs = append(jobs, j)
				}
			}
		})
	}
	return jobs
}

// setupJob takes the job that a repository writes for agents.
func (d githubActions) setupJob(j *job) {
	d.steps = append(d.steps, j.commands...)
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
		return regexp.MustCompile(`^(?:main|master|trunk|develop(?:ment)?|dev|next|default|\*\*?|[0-9v][\w.*-]*)$`).MatchString(p)
	})
}

// job reads a job with one row of its matrix; nil if it does not run on Linux for pull requests or pushes.
func (d githubActions) job(file string, w *workflow, key, value *yaml.Node) *job {
	var in workflowJob
	_ = value.Decode(&in)
	rows, base := matrix(&in.Strategy.Matrix)
	var linux []*scope
	for i, row := range rows {
		s := &scope{matrix: row, extra: i >= base, env: map[string]string{}}
		if s.linux(&in.RunsOn) && s.holds(in.If) {
			linux = append(linux, s)
		}
	}
	if in.Uses != "" && !strings.HasPrefix(in.Uses, "./") {
		d.omit(Position{File: file, Line: key.Line}, in.Uses, "it is a workflow of another repository, which is not read")
	}
	if len(linux) == 0 || in.Uses != "" {
		return nil
	}
	row := sensible(linux)
	name := key.Value
	if label, known, _ := row.fill(in.Name); known && label != "" {
		name += " " + label
	}
	written := expression.ReplaceAllString(in.Name, "")
	j := &job{name: name, at: Position{File: file, Line: key.Line}, aside: aside(path.Base(file), w.Name, key.Value, written)}
	workflowEnv := d.env(file, &w.Env, row, &j.secrets)
	jobEnv := d.env(file, &in.Env, row, &j.secrets)
	for _, v := range append(slices.Clone(workflowEnv), jobEnv...) {
		row.env[v.Name] = v.Value
	}
	j.env = append(jobEnv, workflowEnv...)
	pairs(&in.Services, func(name, value *yaml.Node) { d.service(j, file, name, value, row) })
	for i := range in.Steps {
		st := &in.Steps[i]
		if !row.holds(st.If) || st.Tolerant == "true" {
			first, _, _ := strings.Cut(st.Run.Value, "\n")
			if first != "" && !j.aside && checkJobs.MatchString(j.name) && !nothing.MatchString(first) {
				d.omit(Position{File: file, Line: st.Run.Line}, first, "its condition does not hold for pull requests, or its failure does not count")
			}
			continue
		}
		if st.Uses.Value != "" {
			d.action(j, file, st, linux, row)
			continue
		}
		d.run(j, file, w, &in, st, row)
	}
	return j
}

// linux reports whether a job runs on Linux, as far as its file says.
func (s *scope) linux(runsOn *yaml.Node) bool {
	labels := runsOn.Content
	if runsOn.Kind == yaml.ScalarNode {
		labels = []*yaml.Node{runsOn}
	}
	for _, l := range labels {
		label, _, _ := s.fill(l.Value)
		if regexp.MustCompile(`(?i)^(?:windows|macos|mac)|arm|freebsd`).MatchString(label) {
			return false
		}
	}
	return true
}

// run takes the commands of a step.
func (d githubActions) run(j *job, file string, w *workflow, in *workflowJob, st *workflowStep, row *scope) {
	at := Position{File: file, Line: st.Run.Line}
	var needed []Var
	env := d.env(file, &st.Env, row, &needed)
	needed = slices.DeleteFunc(needed, func(v Var) bool { return idleVariable.MatchString(v.Name) })
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
	for _, v := range env {
		inner.env[v.Name] = v.Value
	}
	content, secret := d.known(j, at, st.Run.Value, &inner)
	for _, c := range script(content, dir, at) {
		c.env = append(c.env, env...)
		j.commands = append(j.commands, step{command: c, secret: secret || len(needed) > 0, foreign: aptSource.MatchString(content)})
	}
}

var (
	// setsVariable is a line that sets a variable for the steps after it.
	setsVariable = regexp.MustCompile(`^echo ["']?([A-Za-z_]\w*)=([^"'$\x60]*)["']? ?>> ?"?\$\{?GITHUB_ENV\}?"?$`)
	// aptSource adds a source of packages that the sandbox does not have.
	aptSource = regexp.MustCompile(`\bapt-key\b|\b(?:add-apt|apt-add)-repository\b|/etc/apt/`)
)

// known returns the lines of a script that do not depend on a run of the pipeline, and whether a line needs a secret. Variables that the
// script sets for later steps become the job's.
func (d githubActions) known(j *job, at Position, content string, row *scope) (known string, secret bool) {
	content = strings.NewReplacer("${GITHUB_WORKSPACE}", workorder.Workspace, "$GITHUB_WORKSPACE", workorder.Workspace).Replace(content)
	lines := []string{content}
	if !compound.MatchString(content) {
		lines = strings.Split(strings.ReplaceAll(content, "\\\n", " "), "\n")
	}
	for _, line := range lines {
		filled, all, hidden := row.fill(line)
		secret = secret || hidden
		if m := setsVariable.FindStringSubmatch(filled); all && m != nil {
			j.env = append([]Var{{m[1], m[2], at}}, j.env...)
			continue
		}
		if all && !strings.Contains(filled, "GITHUB_") {
			known += filled + "\n"
			continue
		}
		first, _, _ := strings.Cut(strings.TrimSpace(line), "\n")
		if hidden {
			d.omit(at, "run", "it needs a secret")
		} else if checkJobs.MatchString(j.name) && !j.aside && !nothing.MatchString(first) {
			d.omit(at, first, "it depends on values that only a run of the pipeline has")
		}
	}
	return known, secret
}

// env reads the variables of a workflow, a job or a step. Those that need a secret are added to secrets.
func (d githubActions) env(file string, n *yaml.Node, row *scope, secrets *[]Var) (vars []Var) {
	pairs(n, func(key, value *yaml.Node) {
		at := Position{File: file, Line: key.Line}
		filled, known, secret := row.fill(value.Value)
		switch {
		case secret:
			*secrets = append(*secrets, Var{key.Value, "", at})
		case known && value.Kind == yaml.ScalarNode && (filled != "" || value.Value == ""):
			vars = append(vars, Var{key.Value, filled, at})
		}
	})
	return vars
}

// actionTools are actions that install a tool, and the input with its version.
var actionTools = map[string]struct{ tool, input string }{
	"actions/setup-node":     {"node", "node-version"},
	"actions/setup-go":       {"go", "go-version"},
	"actions/setup-python":   {"python", "python-version"},
	"actions/setup-java":     {"java", "java-version"},
	"pnpm/action-setup":      {"pnpm", "version"},
	"oven-sh/setup-bun":      {"bun", "bun-version"},
	"ruby/setup-ruby":        {"ruby", "ruby-version"},
	"shivammathur/setup-php": {"php", "php-version"},
	"astral-sh/setup-uv":     {"uv", "version"},
	"denoland/setup-deno":    {"deno", "deno-version"},
}

type actionCheck struct{ command, args, usual, install string }

// actionChecks are actions that check by themselves: the command, with the input that has its arguments, and how it is installed.
// An action without a command installs a program that setup has no short way to install.
var actionChecks = map[string]actionCheck{
	"astral-sh/ruff-action":          {"ruff", "args", "check", "pip install ruff=="},
	"chartboost/ruff-action":         {"ruff", "args", "check", "pip install ruff=="},
	"psf/black":                      {"black", "options", "--check .", "pip install black=="},
	"golangci/golangci-lint-action":  {"golangci-lint run", "args", "", "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v"},
	"dominikh/staticcheck-action":    {"staticcheck", "", "./...", "honnef.co/go/tools/cmd/staticcheck@"},
	"biomejs/setup-biome":            {},
	"pre-commit/action":              {},
	"crate-ci/typos":                 {},
	"ludeeus/action-shellcheck":      {},
	"reviewdog/action-golangci-lint": {},
	"actions-rs/clippy-check":        {},
	"super-linter/super-linter":      {},
	"jakebailey/pyright-action":      {},
}

// action takes the versions and checks of an action.
func (d githubActions) action(j *job, file string, st *workflowStep, rows []*scope, row *scope) {
	at := Position{File: file, Line: st.Uses.Line}
	if dir, local := strings.CutPrefix(st.Uses.Value, "./"); local {
		d.composite(j, path.Clean(dir), st, rows, row)
		return
	}
	uses, _, _ := strings.Cut(strings.ToLower(st.Uses.Value), "@")
	with := func(s *scope, name string) string {
		n := st.With[name]
		v, known, _ := s.fill(n.Value)
		if !known {
			return ""
		}
		return v
	}
	if uses == "actions/checkout" {
		j.modules = j.modules || with(row, "repository") == "" && slices.Contains([]string{"true", "recursive"}, with(row, "submodules"))
		return
	}
	if known, ok := actionTools[uses]; ok {
		if known.tool == "php" {
			d.extensions(j, at, with(row, "extensions"))
		}
		j.tool(at, known.tool, st.With[known.input].Value, rows)
		return
	}
	check, ok := actionChecks[uses]
	if !ok || j.aside {
		return
	}
	c := step{command: command{
		text: strings.TrimSpace(check.command + " " + cmp.Or(with(row, check.args), check.usual)),
		dir:  cmp.Or(with(row, "working-directory"), "."), at: at,
	}}
	install, why := check.installed(with(row, "version"), with(row, "only-new-issues") == "true")
	switch {
	case why != "":
		d.omit(at, st.Uses.Value[:len(uses)], "%s", why)
		return
	case strings.HasPrefix(install, "pip "):
		j.commands = append(j.commands, step{command: command{text: install, dir: c.dir, at: at}})
	default:
		c.install = install
	}
	j.commands = append(j.commands, c)
}

// installed returns the command that installs an action's program, or why there is none.
func (c actionCheck) installed(version string, some bool) (install, why string) {
	version = strings.TrimPrefix(version, "v")
	exact := plainNumber.MatchString(version)
	switch {
	case c.command == "", some:
		return "", "the sandbox does not have its program; a project file can install it under setup"
	case strings.HasPrefix(c.install, "pip "):
		if !exact {
			return strings.TrimSuffix(c.install, "=="), ""
		}
		return c.install + version, ""
	case !exact, strings.HasPrefix(version, "1."): // the module of golangci-lint 1 is another one
		return "", "nothing says which version; a project file can install it under setup"
	}
	return `GOBIN="$HOME/.local/bin" go install ` + c.install + version, ""
}

// tool adds the versions of a tool that the rows of a job install.
func (j *job) tool(at Position, tool, input string, rows []*scope) {
	var all []string
	for _, s := range rows {
		filled, known, _ := s.fill(input)
		if v := strings.TrimSuffix(plainVersion(filled), ".x"); known && v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	if len(all) > 1 || len(all) == 0 && strings.Contains(input, "matrix.") {
		all = slices.DeleteFunc(all, func(v string) bool { return !plainNumber.MatchString(v) })
		j.several = append(j.several, tool)
	}
	if len(all) == 0 || slices.Contains([]string{"latest", "stable", "lts/*", "node", "current", "oldstable"}, all[0]) {
		return
	}
	slices.SortFunc(all, versionrange.Compare)
	if len(all) > 1 && tool == "go" { // a newer Go builds what an older one does
		all = []string{">=" + all[0]}
	}
	j.tools = append(j.tools, Tool{tool, strings.Join(all, " || "), at})
}

// extensions makes packages of the extensions of PHP that a job installs.
func (d githubActions) extensions(j *job, at Position, names string) {
	for name := range strings.FieldsFuncSeq(names, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		if pkg := extensions[strings.ToLower(name)]; pkg != "" {
			j.commands = append(j.commands, step{command: command{text: "apt-get install " + pkg, dir: ".", at: at}})
		}
	}
}

// composite takes the steps of an action of the repository.
func (d githubActions) composite(j *job, dir string, st *workflowStep, rows []*scope, row *scope) {
	f := (&detector{d.source, dir}).first("action.yml", "action.yaml")
	var action struct {
		Inputs map[string]struct {
			Default string `yaml:"default"`
		} `yaml:"inputs"`
		Runs struct {
			Steps []workflowStep `yaml:"steps"`
		} `yaml:"runs"`
	}
	if f == nil || row.inputs != nil || !d.decode(f, &action) {
		return
	}
	inner := *row
	inner.inputs = map[string]any{}
	for name, in := range action.Inputs {
		inner.inputs[name] = in.Default
	}
	for name, value := range st.With {
		if v, known, _ := row.fill(value.Value); known {
			inner.inputs[name] = v
		} else {
			inner.inputs[name] = unknown{}
		}
	}
	for i := range action.Runs.Steps {
		s := &action.Runs.Steps[i]
		switch {
		case !inner.holds(s.If):
		case s.Uses.Value != "":
			d.action(j, f.name, s, rows, &inner)
		default:
			d.run(j, f.name, &workflow{}, &workflowJob{}, s, &inner)
		}
	}
}

var plainNumber = regexp.MustCompile(`^[0-9]+(?:\.[0-9x*]+)*$`)

// service takes a container beside a job.
func (d githubActions) service(j *job, file string, name, value *yaml.Node, row *scope) {
	at := Position{File: file, Line: name.Line}
	var in workflowService
	if value.Kind == yaml.ScalarNode {
		in.Image = value.Value
	} else {
		_ = value.Decode(&in)
	}
	image, known, _ := row.fill(in.Image)
	if !known {
		d.omit(at, "services."+name.Value, "its image depends on values that only a run of the pipeline has")
		return
	}
	s := Service{Name: name.Value, Image: image, At: at, Health: healthOptions(in.Options)}
	var written []any
	for _, p := range in.Ports {
		if port, known, _ := row.fill(p); known && portOf(containerPart(port)) != 0 {
			s.Ports = append(s.Ports, containerPart(port))
			written = append(written, port)
		}
	}
	s.Ports = published(s.Ports, hostPorts(written))
	var secrets []Var
	vars := d.env(file, &in.Env, row, &secrets)
	for _, v := range secrets {
		d.omit(v.At, "services."+name.Value+".env."+v.Name, "it needs a secret")
	}
	s.Env = d.variablesOf(name.Value, vars)
	if text, known, _ := row.fill(in.Command.Value); known && text != "" {
		s.Command = strings.Fields(text)
	}
	for _, n := range in.Command.Content {
		s.Command = append(s.Command, n.Value)
	}
	j.services = append(j.services, s)
}

var healthOption = regexp.MustCompile(`--health-(cmd|interval|timeout|retries)[ =]+("[^"]*"|'[^']*'|\S+)`)

// healthOptions reads the options of `docker create` that say when a container is healthy.
func healthOptions(options string) (h Health) {
	for _, m := range healthOption.FindAllStringSubmatch(options, -1) {
		value := strings.Trim(m[2], `"'`)
		switch m[1] {
		case "cmd":
			h.Test = []string{"CMD-SHELL", value}
		case "interval":
			h.Interval = goSpan(value)
		case "timeout":
			h.Timeout = goSpan(value)
		case "retries":
			h.Retries = portOf(value)
		}
	}
	if len(h.Test) == 0 {
		return Health{}
	}
	return h
}

func goSpan(s string) string {
	if t, err := time.ParseDuration(s); err != nil || t <= 0 {
		return ""
	}
	return s
}

// matrix returns the combinations of a matrix, the first base of which are products; one without a value if there is none, or if only a run
// has it.
func matrix(n *yaml.Node) (rows []map[string]any, base int) {
	rows = []map[string]any{{}}
	var keys []string
	var include, exclude []map[string]any
	pairs(n, func(key, value *yaml.Node) {
		switch key.Value {
		case "include":
			_ = value.Decode(&include)
			return
		case "exclude":
			_ = value.Decode(&exclude)
			return
		}
		var values []any
		if value.Decode(&values) != nil || len(values) == 0 {
			values = []any{unknown{}}
		}
		keys = append(keys, key.Value)
		var next []map[string]any
		for _, row := range rows {
			for _, v := range values {
				if len(next) < maxRows {
					next = append(next, with(row, key.Value, v))
				}
			}
		}
		rows = next
	})
	if n.Kind == yaml.ScalarNode && n.Value != "" {
		return []map[string]any{nil}, 1
	}
	rows = slices.DeleteFunc(rows, func(row map[string]any) bool {
		return slices.ContainsFunc(exclude, func(e map[string]any) bool { return len(e) > 0 && agrees(row, e, sortedKeys(e)) })
	})
	base = len(rows)
	if len(keys) == 0 && len(include) > 0 {
		rows, base = nil, 0
	}
	return included(rows, keys, include, base), base
}

// included adds the rows of include, or their values to the rows with which they agree.
func included(rows []map[string]any, keys []string, include []map[string]any, base int) []map[string]any {
	for _, in := range include {
		shared := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { _, ok := in[k]; return !ok })
		extends := false
		for i := range rows[:base] {
			if agrees(rows[i], in, shared) {
				extends = true
				for k, v := range in {
					rows[i] = with(rows[i], k, v)
				}
			}
		}
		if !extends && len(rows) < maxRows {
			rows = append(rows, in)
		}
	}
	return rows
}

func with(row map[string]any, key string, value any) map[string]any {
	next := map[string]any{key: value}
	for k, v := range row {
		if k != key {
			next[k] = v
		}
	}
	return next
}

func agrees(row, other map[string]any, keys []string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return fmt.Sprint(row[k]) != fmt.Sprint(other[k]) })
}

// unusual are values of a matrix that are not what most users have.
var unusual = regexp.MustCompile(`(?i)` +
	among("nightly head next canary alpha beta dev edge rc pypy graal jruby truffle experimental minimal lowest") + `|[0-9]t$`)

// sensible chooses a row of a matrix: usual values, and the newest versions.
func sensible(rows []*scope) *scope {
	best := rows[0]
	odd := func(s *scope) (n int) {
		if s.extra {
			n++
		}
		for k, v := range s.matrix {
			if unusual.MatchString(fmt.Sprint(v)) || regexp.MustCompile(`(?i)experimental|allow|fail|coverage`).MatchString(k) && truth(v) {
				n++
			}
		}
		return n
	}
	for _, s := range rows[1:] {
		switch {
		case odd(s) > odd(best), len(s.matrix) > len(best.matrix) && odd(s) == odd(best) && !newer(s, best):
		case odd(s) < odd(best), newer(s, best):
			best = s
		}
	}
	return best
}

// leaves are the texts of a row, those of values in values too.
func leaves(row map[string]any, prefix string) map[string]string {
	all := map[string]string{}
	for k, v := range row {
		if inner, ok := v.(map[string]any); ok {
			maps.Copy(all, leaves(inner, prefix+k+"."))
		} else {
			all[prefix+k] = fmt.Sprint(v)
		}
	}
	return all
}

// newer reports whether a row has a newer version, and no older one.
func newer(a, b *scope) bool {
	found := false
	older := leaves(b.matrix, "")
	for k, x := range leaves(a.matrix, "") {
		y := older[k]
		x, xs, _ := strings.Cut(x, "-")
		y, ys, _ := strings.Cut(y, "-")
		if !plainNumber.MatchString(x) || !plainNumber.MatchString(y) {
			if strings.Contains(k, ".") && x != y {
				return false // the versions beside it are of different things
			}
			continue
		}
		if xs != ys {
			return false
		}
		switch versionrange.Compare(x, y) {
		case 1:
			found = true
		case -1:
			return false
		}
	}
	return found
}
