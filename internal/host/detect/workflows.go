package detect

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rhysd/actionlint"
	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// setupSteps is the job that a repository writes for agents (docs.github.com, "customizing the development environment for
// Copilot coding agent"): its commands are the setup as it is meant.
const setupSteps = "copilot-setup-steps"

// maxWorkflow bounds one workflow; the parser takes more memory than the file.
const maxWorkflow = 256 << 10

// githubActions reads the workflows of GitHub Actions: versions, services, environment and checks.
type githubActions struct{ *detector }

func (d githubActions) read() {
	names := d.names(".github/workflows", ".yml", ".yaml")
	if len(names) > maxWorkflows {
		d.omit(Position{File: ".github/workflows"}, "workflows", "only the first 40 are read")
		names = names[:maxWorkflows]
	}
	var flows []flow
	all := 0
	for _, n := range names {
		if f := d.open(n); f != nil {
			all += len(f.text)
		}
		if all > maxAllWorkflows {
			d.omit(Position{File: n}, "workflows", "they are larger than 1 MB together: neither this one nor those after it are read")
			break
		}
		if w := d.workflow(n); w != nil {
			flows = append(flows, flow{n, w})
		}
	}
	for _, f := range flows {
		if job := f.Jobs[setupSteps]; job != nil {
			d.setupJob(f.name, job)
		}
	}
	meant := len(d.hints)
	for _, f := range flows {
		if !f.checksChanges() {
			continue
		}
		for _, job := range f.jobs() {
			if job.ID.Value != setupSteps {
				d.job(f, job)
			}
		}
	}
	// Where one job goes through many versions, the one of another job is not what the repository asks for.
	jobs := slices.DeleteFunc(slices.Clone(d.hints[meant:]), func(t Tool) bool { return slices.Contains(d.many, t.Name) })
	d.hints = append(d.hints[:meant], jobs...)
}

type flow struct {
	name string
	*actionlint.Workflow
}

func (d githubActions) workflow(name string) *actionlint.Workflow {
	f := d.open(name)
	if f == nil {
		return nil
	}
	if len(f.text) > maxWorkflow {
		d.omit(Position{File: name}, name, "it is larger than 256 kB")
		return nil
	}
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(f.text), &doc); err != nil { // bounds what aliases multiply, which the next parser does not
		d.omit(Position{File: name}, name, err.Error())
		return nil
	}
	w, _ := actionlint.Parse([]byte(f.text)) // what it has to say of style is the repository's affair
	return w
}

// checksChanges reports whether a workflow runs for pushes or pull requests: others release, deploy or tidy up.
func (f flow) checksChanges() bool {
	return slices.ContainsFunc(f.On, func(e actionlint.Event) bool {
		return slices.Contains([]string{"push", "pull_request", "merge_group"}, e.EventName())
	})
}

// jobs are in the order of the file.
func (f flow) jobs() []*actionlint.Job {
	jobs := slices.DeleteFunc(slices.Collect(maps.Values(f.Jobs)), func(j *actionlint.Job) bool {
		return j == nil || j.ID == nil || j.Pos == nil
	})
	slices.SortFunc(jobs, func(a, b *actionlint.Job) int { return cmp.Compare(a.Pos.Line, b.Pos.Line) })
	return jobs
}

func place(name string, pos *actionlint.Pos) Position {
	if pos == nil {
		return Position{File: name}
	}
	return Position{File: name, Line: pos.Line}
}

// plain is a value without an expression of the workflow's language.
func plain(s *actionlint.String) (string, bool) {
	if s == nil || strings.Contains(s.Value, "${{") {
		return "", false
	}
	return strings.TrimSpace(s.Value), true
}

func (d githubActions) setupJob(name string, job *actionlint.Job) {
	for _, step := range job.Steps {
		switch exec := step.Exec.(type) {
		case *actionlint.ExecRun:
			command, ok := plain(exec.Run)
			if !ok {
				d.omit(place(name, step.Pos), setupSteps, "it uses expressions of the workflow")
				continue
			}
			d.setup(place(name, exec.Run.Pos), within(exec, command))
		case *actionlint.ExecAction:
			d.action(name, step, exec, &d.hints)
		}
	}
	d.jobServices(name, job)
}

// within is a command in the folder that its step names.
func within(exec *actionlint.ExecRun, command string) string {
	if dir, ok := plain(exec.WorkingDirectory); ok && dir != "" && dir != "." {
		return text.Shell("cd", dir) + " && " + command
	}
	return command
}

// actionTools are actions that bring a tool: which, and the input with its version.
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
}

// ofMatrix is a value that differs from run to run of a job.
var ofMatrix = regexp.MustCompile(`\$\{\{\s*matrix\.`)

// action adds the version that an action is given to some hints.
func (d githubActions) action(name string, step *actionlint.Step, exec *actionlint.ExecAction, to *[]Tool) {
	uses, ok := plain(exec.Uses)
	if !ok {
		return
	}
	uses, _, _ = strings.Cut(uses, "@")
	known, ok := actionTools[strings.ToLower(uses)]
	if !ok {
		return
	}
	if in := exec.Inputs[known.input]; in != nil {
		switch v, ok := plain(in.Value); {
		case !ok:
			if in.Value != nil && ofMatrix.MatchString(in.Value.Value) {
				d.many = append(d.many, known.tool)
			}
		case v != "" && !slices.Contains([]string{"latest", "stable", "lts/*", "node"}, v):
			hintTo(to, place(name, step.Pos), known.tool, v)
		}
	}
}

// checkJobs are names of jobs whose commands judge the work.
var checkJobs = regexp.MustCompile(`(?i)(^|[^a-z])` +
	`(tests?|unit|lint(er)?|check(s)?|build|typecheck|types|ci|verify|quality|validate)([^a-z]|$)`)

func (d githubActions) job(f flow, job *actionlint.Job) {
	label := job.ID.Value
	if !checkJobs.MatchString(label) && (job.Name == nil || !checkJobs.MatchString(job.Name.Value)) {
		return
	}
	if !linux(job) {
		return
	}
	d.jobServices(f.name, job)
	hints := &d.hints
	if f.aside(job) {
		hints = &d.aside
	}
	for _, step := range job.Steps {
		switch exec := step.Exec.(type) {
		case *actionlint.ExecAction:
			d.action(f.name, step, exec, hints)
		case *actionlint.ExecRun:
			d.jobCommand(f.name, step, exec)
		}
	}
}

// asideJobs are names of jobs, and of workflows, that use the code for something else than to say whether it works: the
// versions in them are those that their tools want.
var asideJobs = regexp.MustCompile(`(?i)(^|[^a-z])` +
	`(coverage|codecov|coveralls|codeql|scorecard|bench(marks?)?|docs?|fuzz(ing)?|nightly|release)([^a-z]|$)`)

func (f flow) aside(job *actionlint.Job) bool {
	return slices.ContainsFunc([]*actionlint.String{{Value: path.Base(f.name)}, f.Name, job.ID, job.Name}, func(s *actionlint.String) bool {
		return s != nil && asideJobs.MatchString(s.Value)
	})
}

// linux reports whether a job can run on Linux, as far as it says.
func linux(job *actionlint.Job) bool {
	if job.RunsOn == nil {
		return true
	}
	return !slices.ContainsFunc(job.RunsOn.Labels, func(l *actionlint.String) bool {
		return strings.HasPrefix(l.Value, "windows") || strings.HasPrefix(l.Value, "macos")
	})
}

// jobCommand takes a step that is one plain command of a known kind, and that needs nothing of the workflow.
func (d githubActions) jobCommand(name string, step *actionlint.Step, exec *actionlint.ExecRun) {
	command, ok := plain(exec.Run)
	if !ok || strings.Contains(command, "GITHUB_") || step.If != nil {
		return
	}
	at := place(name, exec.Run.Pos)
	var checks []Check
	for line := range strings.Lines(command) {
		line = strings.TrimSpace(line)
		kind := d.kind(line)
		if kind == "" {
			return // a script, whose lines may need each other
		}
		checks = append(checks, Check{kind, within(exec, line), at})
	}
	for _, c := range checks {
		d.check(at, c.Name, c.Command)
	}
}

func (d githubActions) jobServices(file string, job *actionlint.Job) {
	if job.Services == nil {
		return
	}
	for _, name := range sortedKeys(job.Services.Value) {
		s := job.Services.Value[name]
		if s == nil || s.Container == nil || slices.ContainsFunc(d.Services, func(have Service) bool { return have.Name == name }) {
			continue
		}
		at := place(file, s.Container.Pos)
		image, ok := plain(s.Container.Image)
		if !ok || !imageForm.MatchString(image) || !workorder.ValidServiceName(name) || len(d.Services) >= maxList {
			d.omit(at, "services."+name, "its image or name is not a plain one")
			continue
		}
		service := Service{Name: name, Image: image, At: at}
		var written []any
		for _, p := range s.Container.Ports {
			if text, ok := plain(p); ok && portOf(containerPart(text)) != 0 {
				service.Ports = append(service.Ports, containerPart(text))
				written = append(written, text)
			}
		}
		service.Ports = d.published(service.Ports, hostPorts(written, nil))
		if env := s.Container.Env; env != nil {
			service.Env = d.variablesOf(name, func(add addVariable) {
				for _, k := range sortedKeys(env.Vars) {
					if v := env.Vars[k]; v != nil && v.Name != nil && v.Value != nil {
						add(at, v.Name.Value, v.Value.Value)
					}
				}
			})
		}
		if o, ok := plain(s.Container.Options); ok {
			service.Health = healthOptions(o)
		}
		d.Services = append(d.Services, service)
	}
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
