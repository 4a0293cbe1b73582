package detect

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// job is a job of a pipeline that runs for pull requests or the default branch, on Linux, with one row of its matrix.
type job struct {
	name     string
	at       Position
	aside    bool     // it does not judge: coverage, benchmarks, documentation
	env      []Var    // the job's own before the workflow's
	secrets  []Var    // variables that need a secret
	tools    []Tool   // versions that it installs; several as a range
	several  []string // tools of which its matrix has several versions
	services []Service
	commands []step
	modules  bool // it checks out submodules
}

// step is a command of a job.
type step struct {
	command
	secret  bool   // it needs a secret
	foreign bool   // its script adds a source of packages
	install string // how setup installs its program
	verdict
}

// special are the variables that do not only matter to the pipeline.
func special(env []Var) []Var {
	return slices.DeleteFunc(slices.Clone(env), func(v Var) bool { return idleVariable.MatchString(v.Name) })
}

// plan chooses the checks, and the jobs that say what they need.
type plan struct {
	*detector
	jobs   []*job
	chosen []*job       // by the checks of tests
	used   []*job       // by any check
	prior  map[*job]int // the command of a chosen job that tests
}

var (
	// checkJobs are names of jobs that judge, and asideJobs of jobs and workflows that use the code for something else: the versions
	// in them are those that their tools need.
	checkJobs = regexp.MustCompile(`(?i)(?:^|[^a-z])` +
		among("tests? unit lint(?:er)? checks? build typecheck types ci verify quality validate") + `(?:[^a-z]|$)`)
	asideJobs = regexp.MustCompile(`(?i)(?:^|[^a-z])` +
		among(`coverage codecov coveralls codeql scorecard bench(?:marks?)? docs? doctests? documentation website
		alternative package-manager fuzz(?:ing)? nightly release deploy publish downstream e2e autofix third-party codspeed
		miri msrv min legacy wasm`) + `(?:[^a-z]|$)`)
)

func aside(names ...string) bool { return slices.ContainsFunc(names, asideJobs.MatchString) }

func newPlan(d *detector, jobs []*job) *plan {
	p := &plan{detector: d, jobs: jobs, prior: map[*job]int{}}
	for _, j := range jobs {
		for _, c := range j.commands {
			if m := pipCommand.FindStringSubmatch(c.text); m != nil {
				d.pip += "\n" + m[1]
			}
		}
	}
	for _, j := range jobs {
		for i := range j.commands {
			p.judge(j, &j.commands[i])
		}
	}
	return p
}

// judge classifies a command of a job, and says why it cannot be used.
func (p *plan) judge(j *job, c *step) {
	packages, rest := Apt(c.text)
	if rest == "" && c.foreign && len(packages) > 0 {
		p.omit(c.at, strings.Join(packages, " "), "its script adds a source of packages that the sandbox does not have")
		return
	}
	if rest == "" {
		c.verdict = verdict{kind: kindPrepare, packages: packages}
		return
	}
	refuse := func(why string) { c.verdict = verdict{kind: kindRefused, why: why} }
	switch {
	case c.dir != "." && !p.isDir(c.dir):
		refuse("the repository has no such directory")
		p.omit(c.at, c.dir, "%s", c.why)
		return
	case composeUp.MatchString(c.text), dockerRun.MatchString(c.text):
		c.kind = kindNothing // its services are taken apart
	case c.complex:
		c.verdict = verdict{why: reasonPlain}
	case strings.HasPrefix(c.text, "sudo "):
		refuse("it needs root")
	case c.install != "":
		program, _, _ := strings.Cut(c.text, " ")
		c.verdict = verdict{eco: &golang, kind: kindLint, tool: program, command: `"$HOME/.local/bin/` + program + `"` + c.text[len(program):]}
	default:
		c.verdict = (&detector{p.source, c.dir}).classify(c.text, 0)
	}
	if c.kind.judges() && c.secret {
		refuse("it needs a secret")
	}
	if other := map[*ecosystem]*ecosystem{&maven: &gradle, &gradle: &maven}[c.eco]; other != nil && len(p.checksOf(other, c.dir)) > 0 {
		refuse("setup and checks use " + other.name)
	}
	if eco := c.eco; c.kind.judges() && eco != &python && eco != &makefiles && !(&detector{p.source, c.dir}).present(eco) {
		refuse("its directory has no " + eco.files[0])
	}
	if c.eco == &rust && strings.Contains(c.text, "--locked") && !(&detector{p.source, c.dir}).has("Cargo.lock") {
		refuse("there is no Cargo.lock")
	}
	if c.kind.judges() && helper(c.dir) {
		refuse("its directory does not hold the project itself")
	}
	if !j.aside && (c.kind == kindRefused || c.kind == kindOther || c.kind == kindUnknown && checkJobs.MatchString(j.name)) {
		p.omit(c.at, c.text, "%s", c.why)
	}
}

// checksOf returns the checks of an ecosystem's convention in a directory.
func (p *plan) checksOf(eco *ecosystem, dir string) []found {
	if t := p.parts[eco.name+":"+dir]; t != nil {
		return t.checks
	}
	return nil
}

// versions takes the versions of the jobs. Where one job has several of a tool, the one of another job is not what the repository needs.
func (p *plan) versions() {
	several := map[string]bool{}
	for _, j := range p.jobs {
		for _, t := range j.several {
			several[t] = several[t] || !j.aside
		}
	}
	for _, j := range p.jobs {
		for _, t := range j.tools {
			if !slices.Contains(p.used, j) && !slices.ContainsFunc(p.order, func(part *part) bool { return part.eco.uses(t.Name) }) {
				continue
			}
			level := hintPipeline
			switch {
			case slices.Contains(j.several, t.Name):
				level = hintMatrix
			case several[t.Name]:
				continue
			case j.aside:
				level = hintAside
			case !checkJobs.MatchString(j.name) && !slices.ContainsFunc(j.commands, func(c step) bool { return c.kind.judges() }):
				level = hintAside
			}
			p.hint(level, t.At, t.Name, t.Version)
		}
	}
}

// candidates lists the commands of jobs for a kind of check of a part, the simplest job first.
func (p *plan) candidates(t *part, k kind) (all []found) {
	for _, j := range p.jobs {
		for i := range j.commands {
			c := &j.commands[i]
			if c.kind == k && c.eco == t.eco && c.dir == t.d.dir {
				all = append(all, found{verdict: c.verdict, text: c.text, at: c.at, job: j, i: i, env: c.env, install: c.install})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b found) int {
		weight := func(c found) int {
			w := len(c.job.services) + 2*len(special(c.env)) + 2*len(special(c.job.env))
			if t.eco == &node && !strings.HasPrefix(c.text, t.label+" ") {
				w += 50 // of another package manager than setup
			}
			if c.job.aside {
				w += 100
			}
			return w
		}
		return cmp.Compare(weight(a), weight(b))
	})
	return all
}

// checks chooses the checks of every part.
func (p *plan) checks() {
	gated := false
	for _, j := range p.jobs {
		for i := range j.commands {
			c := &j.commands[i]
			gated = gated || c.kind.judges() && !j.aside
			if !c.kind.judges() || !p.inProject(c) {
				continue
			}
			if c.eco == &makefiles && p.tested(c.dir) && (c.kind == kindTest || c.kind == kindCheck && c.tests) {
				p.omit(c.at, c.text, "the tests of the ecosystem run without it")
				c.kind = kindUnknown
				continue
			}
			p.part(c.eco, c.dir)
		}
	}
	if !slices.ContainsFunc(p.order, func(t *part) bool { return len(t.checks) > 0 }) && p.present(&makefiles) {
		p.part(&makefiles, ".")
	}
	for _, t := range p.order {
		t.flags(p)
		var all []found
		for k := range strings.FieldsSeq(checkKinds) {
			all = append(all, p.choose(t, kind(k), gated)...)
		}
		t.checks = all
	}
	if len(p.chosen) == 0 {
		for _, t := range append(p.order, &part{eco: &makefiles, d: p.detector}) {
			if j := p.delegate(t); j != nil && len(p.chosen) == 0 {
				p.chosen, p.prior[j] = []*job{j}, len(j.commands)
				p.use(j)
			}
		}
	}
	p.name()
}

// inProject reports whether a command of a job runs in a part of its own, not in a member of another.
func (p *plan) inProject(c *step) bool {
	inside := func(m string) bool { return c.dir == m || strings.HasPrefix(c.dir, m+"/") }
	if c.dir == "." || !slices.ContainsFunc(p.members, inside) {
		return true
	}
	p.omit(c.at, c.text, "the checks of the root cover %s", c.dir)
	c.kind = kindOther
	return false
}

// tested reports whether a directory has an ecosystem with tests.
func (p *plan) tested(dir string) bool {
	return slices.ContainsFunc(p.order, func(t *part) bool {
		return t.eco != &makefiles && t.d.dir == dir && slices.ContainsFunc(t.checks, func(f found) bool { return f.kind == kindTest })
	})
}

// choose chooses the checks of one kind of a part: the convention's, or the command of a job that covers as much.
func (p *plan) choose(t *part, k kind, gated bool) (chosen []found) {
	usual := slices.IndexFunc(t.checks, func(f found) bool { return f.kind == k })
	var whole, narrow []found
	for _, c := range p.candidates(t, k) {
		switch {
		case c.narrow, t.covers != nil && !t.covers(c.text):
			narrow = append(narrow, c)
		case !c.job.aside || k == kindTest && len(whole) == 0:
			whole = append(whole, c)
		}
	}
	take := func(c found) found {
		p.use(c.job)
		if c.install != "" {
			t.install(c.at, c.install)
		}
		return c
	}
	if k == kindTest {
		return p.chooseTest(t, usual, whole, narrow, take)
	}
	tools := map[string]bool{}
	for _, c := range whole {
		if !tools[c.tool] && (usual < 0 || t.eco != &node || c.task || !gated) {
			tools[c.tool] = true
			chosen = append(chosen, take(c))
		}
	}
	if len(chosen) == 0 && len(whole) > 0 {
		chosen = append(chosen, take(whole[0]))
	}
	for _, c := range narrow {
		p.omit(c.at, c.text, "it covers a part of the project")
	}
	if usual < 0 || len(chosen) > 0 {
		return chosen
	}
	f := t.checks[usual]
	switch {
	case k == kindVet:
	case gated && t.eco != &python:
		p.omit(f.at, f.command, "no job of a pull request runs it")
		return nil
	case k == kindBuild && slices.ContainsFunc(outputs, func(o string) bool { return p.isDir(path.Join(t.d.dir, o)) }):
		p.omit(f.at, f.command, "%s", reasonRewrites)
		return nil
	}
	return append(chosen, f)
}

// outputs are directories that builds write, and that a repository should not have.
var outputs = []string{"dist", "build", "out"}

func (p *plan) chooseTest(t *part, usual int, whole, narrow []found, take func(found) found) []found {
	choose := func(c found) found {
		p.chosen = append(p.chosen, c.job)
		p.prior[c.job] = max(p.prior[c.job], c.i)
		return take(c)
	}
	drop := func(all []found, why string) {
		for _, c := range all {
			p.omit(c.at, c.text, "%s", why)
		}
	}
	// A script is the project's own word for its tests; another runner in a job only says what they need.
	replaces := func(c found) bool {
		return usual < 0 || t.eco != &node || c.task && strings.HasPrefix(c.text, t.label+" ")
	}
	heavy := func(c found) bool { return len(c.job.services) > 0 }
	isLight := func(c found) bool { return !heavy(c) && !c.job.aside && unitOnly.MatchString(c.text) }
	light := slices.IndexFunc(narrow, isLight)
	part := func(c found) []found {
		f := choose(c)
		f.tool, f.narrow = extra(f.command), true
		return []found{f}
	}
	switch {
	case len(whole) > 0:
		drop(narrow, "it covers a part of the tests")
		if i := slices.IndexFunc(whole, replaces); i >= 0 {
			return []found{choose(whole[i])}
		}
		c, f := choose(whole[0]), t.checks[usual]
		f.env, f.job, f.i = c.env, c.job, c.i
		return []found{f}
	case light >= 0 && slices.ContainsFunc(narrow, heavy):
		if usual >= 0 {
			p.omit(t.checks[usual].at, t.checks[usual].command, "the jobs run its parts, and some need services")
		}
		chosen := part(narrow[light])
		drop(slices.DeleteFunc(narrow, isLight), "it needs services that other tests do not")
		return chosen
	case usual >= 0 && p.below(t) != "":
		p.omit(t.checks[usual].at, t.checks[usual].command, "the pipelines run the tests in %s", p.below(t))
		return nil
	case usual >= 0:
		drop(narrow, "it covers a part of the tests")
		f := t.checks[usual]
		if j := p.delegate(t); j != nil {
			p.chosen = append(p.chosen, j)
			p.prior[j] = len(j.commands)
			p.use(j)
			f.job = j
		} else if i := slices.IndexFunc(narrow, func(c found) bool { return !c.job.aside }); t.covers != nil && i >= 0 {
			choose(narrow[i])
		}
		return []found{f}
	case t.eco == &makefiles && p.tested(t.d.dir):
		drop(narrow, "it covers a part of the tests")
	case len(narrow) > 0:
		drop(narrow[1:], "it covers a part of the tests")
		return part(narrow[0])
	}
	return nil
}

// below is the directory of Python tests that jobs run, where the part itself has none and the directory uses its environment.
func (p *plan) below(t *part) string {
	for _, other := range p.order {
		if t.eco == &python && other.eco == &python && other.d.dir != t.d.dir && other.d.venv() == t.d.venv() {
			return other.d.dir
		}
	}
	return ""
}

// extra names a check that covers a part of the tests, by what it covers.
func extra(command string) string {
	if m := regexp.MustCompile(`(?i)(unit|integration|e2e|system|functional)`).FindStringSubmatch(command); m != nil {
		return strings.ToLower(m[1])
	}
	return "part"
}

var (
	testWord = regexp.MustCompile(`(?i)\b(?:tests?|ci)\b`)
	testJob  = regexp.MustCompile(`(?i)test|^ci$|build`)
)

// delegate finds the job that tests a part by a program that the sandbox does not use, or by a script.
func (p *plan) delegate(t *part) *job {
	jobs := slices.Clone(p.jobs)
	slices.SortStableFunc(jobs, func(a, b *job) int { return cmp.Compare(len(a.services), len(b.services)) })
	for _, j := range jobs {
		if j.aside || !testJob.MatchString(j.name) {
			continue
		}
		for _, c := range j.commands {
			other := c.kind == kindOther && (c.eco == t.eco || c.eco == nil) || c.kind == kindUnknown && testWord.MatchString(c.text)
			if other && c.dir == t.d.dir {
				return j
			}
		}
	}
	return nil
}

func (p *plan) use(j *job) {
	if !slices.Contains(p.used, j) {
		p.used = append(p.used, j)
	}
}

// flags gives derived commands the flags that all commands of the jobs have.
func (t *part) flags(p *plan) {
	if t.eco == &cmake {
		p.options(t)
	}
	if t.eco != &golang {
		return
	}
	var commands []string
	for _, j := range p.jobs {
		for _, c := range j.commands {
			if c.eco == &golang && c.kind.judges() && c.dir == t.d.dir {
				commands = append(commands, c.text)
			}
		}
	}
	if len(strings.Fields(t.all)) > 1 {
		t.covers = func(string) bool { return false }
	}
	for _, flag := range goShared(commands) {
		add := func(command string) string {
			return regexp.MustCompile(`\bgo (?:test|vet|mod download)`).ReplaceAllString(command, "$0 "+flag)
		}
		for i := range t.checks {
			t.checks[i].command = add(t.checks[i].command)
		}
		for i := range t.setup {
			t.setup[i].Text = strings.Replace(add(t.setup[i].Text), "go mod download -tags", "go mod download # -tags", 1)
		}
	}
}

// name names the checks and adds them to the draft.
func (p *plan) name() {
	testing := map[string]int{}
	for _, t := range p.order {
		if slices.ContainsFunc(t.checks, func(f found) bool { return f.kind == kindTest && !f.narrow }) {
			testing[t.d.dir]++
		}
	}
	for _, t := range p.order {
		// A build that a job runs before the tests brings what they need.
		slices.SortStableFunc(t.checks, func(a, b found) int {
			if a.job != nil && a.job == b.job && (a.kind == kindBuild || b.kind == kindBuild) && t.eco == &node {
				return cmp.Compare(a.i, b.i)
			}
			return 0
		})
		for _, f := range t.checks {
			if p.repeats(t, f) {
				p.omit(f.at, f.command, "it only runs other checks")
				continue
			}
			name := string(f.kind)
			if f.narrow {
				name += "-" + f.tool
			} else if f.kind == kindTest && testing[t.d.dir] > 1 {
				name += "-" + t.label
			}
			p.check(f.at, t.d.dir, name, f.tool, p.withEnv(t, f))
			p.need(f.at, f.packages...)
		}
	}
}

// severalTasks runs tasks by their names.
var severalTasks = regexp.MustCompile(`^(?:npm-run-all2?|run-s|run-p)((?: [\w:.-]+)+)$`)

// repeats reports whether a check is a task that only runs tasks which are checks themselves.
func (p *plan) repeats(t *part, f found) bool {
	task := t.eco.hooks().task
	if task == nil || !f.task {
		return false
	}
	own, content, _ := task(t.d, f.command)
	checked := func(name string) bool {
		return name != own && slices.ContainsFunc(t.checks, func(other found) bool {
			other.command, _, _ = task(t.d, other.command)
			return other.task && other.command == name
		})
	}
	commands := script(content, t.d.dir, Position{})
	return len(commands) > 0 && !slices.ContainsFunc(commands, func(c command) bool {
		name, _, named := task(t.d, c.text)
		names := []string{name}
		if m := severalTasks.FindStringSubmatch(c.text); m != nil {
			names, named = strings.Fields(m[1]), true
		}
		return c.complex || !named || slices.ContainsFunc(names, func(n string) bool { return !checked(n) })
	})
}

// withEnv is the command of a check with the variables of its step, where the whole task has no such variables.
func (p *plan) withEnv(t *part, f found) string {
	words := ""
	if strings.HasPrefix(f.command, "make ") && p.parts[python.name+":"+t.d.dir] != nil {
		words = `PATH="` + t.d.venv() + `/bin:$PATH" `
	}
	if f.kind == kindTest {
		return words + f.command
	}
	for _, v := range f.env {
		if !idleVariable.MatchString(v.Name) && !strings.Contains(v.Value, "\n") {
			words += v.Name + "=" + text.Shell(v.Value) + " "
		}
	}
	return words + f.command
}

// check adds a check under a free name.
func (p *plan) check(at Position, dir, name, tool, command string) {
	command = in(dir, command)
	taken := func(name string) bool {
		return slices.ContainsFunc(p.Validate, func(c Check) bool { return c.Name == name })
	}
	if dir != "." {
		name = shortName(dir + "-" + name)
	}
	if taken(name) && strings.HasPrefix(tool, name) {
		name = tool
	} else if taken(name) {
		name = shortName(name + "-" + tool)
	}
	same := slices.ContainsFunc(p.Validate, func(c Check) bool { return c.Command == command })
	switch {
	case same:
	case taken(name):
		p.omit(at, command, "another check has its name, %s", name)
	case len(p.Validate) < maxList && usable(command):
		p.Validate = append(p.Validate, Check{name, command, at})
	}
}

// idleVariable are variables that only a pipeline needs.
var idleVariable = regexp.MustCompile(`^` +
	among(`CI GITHUB_\w+ GH_\w+ RUNNER_\w+ ACTIONS_\w+ FORCE_COLOR CARGO_TERM_COLOR TERM COLORTERM CODECOV_\w+
	COVERALLS_\w+ NPM_TOKEN NODE_AUTH_TOKEN UV_\w+ TURBO_(?:TOKEN|TEAM) PIP_\w+ \w*CACHE\w* PRE_COMMIT\w*`) + `$`)

// environment takes the variables of the chosen jobs, the steps' first.
func (p *plan) environment() {
	add := func(v Var) {
		if !idleVariable.MatchString(v.Name) {
			p.placed(v.At, v.Name, v.Value)
		}
	}
	for _, t := range p.order {
		for _, f := range t.checks {
			if f.kind != kindTest {
				continue
			}
			for _, v := range f.env {
				add(v)
			}
			if f.job == nil {
				continue
			}
			for _, v := range f.job.env {
				add(v)
			}
			for _, v := range f.job.secrets {
				if !idleVariable.MatchString(v.Name) {
					p.omit(v.At, "env."+v.Name, "it needs a secret")
				}
			}
		}
	}
}

// services takes the containers of the chosen jobs. composed reports that the dev container has a compose file.
func (p *plan) services(composed bool) {
	compose := composeFiles{p.detector}
	for _, j := range p.chosen {
		for _, s := range j.services {
			p.serve(s)
		}
		for _, c := range j.commands {
			compose.command(c.command)
		}
	}
	f := p.first(composeNames...)
	switch {
	case composed, f == nil, slices.ContainsFunc(p.Services, func(s Service) bool { return s.At.File == f.name }):
	case len(p.chosen) > 0:
		p.omit(Position{File: f.name}, f.name, "the job that tests (%s) does not start it", p.chosen[0].name)
	default:
		compose.menu(f)
	}
}

// setup writes the setup: submodules, the installs of the parts, what the chosen jobs prepare, and the commands of the dev container.
func (p *plan) setup(dev []step) {
	p.submodules()
	for _, t := range p.order {
		if t.late != nil {
			t.late(p.used)
		}
		for _, s := range t.setup {
			p.detector.setup(s.At, s.Text)
		}
	}
	for _, j := range p.used {
		for i, c := range j.commands {
			before, chosen := p.prior[j]
			switch {
			case c.kind == kindPrepare && c.verdict.command == "":
				p.need(c.at, c.packages...)
			case c.kind == kindPrepare && chosen && i < before:
				p.need(c.at, c.packages...)
				p.detector.setup(c.at, in(c.dir, strings.TrimSuffix(plainDir.ReplaceAllString(c.verdict.command, "mkdir -p "), " --with-deps")))
			}
		}
	}
	for len(dev) > 0 {
		n := 1
		for n < len(dev) && dev[n].after != "" {
			n++
		}
		p.devLine(dev[:n])
		dev = dev[n:]
	}
}

// devLine takes a line of the dev container, or of the setup job, as one command: what follows && must not run where the command before
// it fails. Nothing runs after a command that must not run.
func (p *plan) devLine(line []step) {
	type piece struct{ after, dir, text string }
	var kept []piece
	after := ""
	for i, c := range line {
		if c.after == ";" || after == "" {
			after = c.after
		}
		command, why := p.devCommand(c)
		if why != "" {
			var rest []string
			for _, r := range line[i:] {
				rest = append(rest, r.text)
			}
			p.omit(c.at, strings.Join(rest, "; "), "%s", why)
			break
		}
		if command != "" {
			kept = append(kept, piece{after, c.dir, command})
			after = ""
		}
	}
	if len(kept) == 0 {
		return
	}
	one := !slices.ContainsFunc(kept, func(k piece) bool { return k.dir != kept[0].dir })
	all := ""
	for i, k := range kept {
		if !one && k.dir != "." {
			k.text = "(" + in(k.dir, k.text) + ")"
		}
		if i > 0 {
			all += strings.Replace(" "+k.after+" ", " ;", ";", 1)
		}
		all += k.text
	}
	if one {
		all = in(kept[0].dir, all)
	}
	p.detector.setup(line[0].at, all)
}

// devCommand returns what setup runs of a command; nothing where the packages or the installs have it, or where it needs root. why says
// that it must not run.
func (p *plan) devCommand(c step) (run, why string) {
	packages, rest := Apt(strings.ReplaceAll(c.text, "sudo -E ", "sudo "))
	p.need(c.at, packages...)
	if rest == "" {
		return "", ""
	}
	here := &detector{p.source, c.dir}
	if here.installs(c.text) {
		p.omit(c.at, c.text, "setup installs the same")
		return "", ""
	}
	v := here.classify(c.text, 0)
	inVenv := slices.ContainsFunc(p.order, func(t *part) bool { return t.eco == &python && t.d.dir == c.dir })
	why = here.harm(c.text)
	switch {
	case regexp.MustCompile(`(?:^|[\s;&|])sudo\s`).MatchString(c.text):
		p.omit(c.at, c.text, "it needs root, which setup does not have")
		return "", ""
	case why != "":
		return "", why
	case c.complex:
	case v.kind == kindInstall && v.eco == &python && pipCommand.MatchString(c.text):
		args := pipCommand.FindStringSubmatch(c.text)[1]
		install := here.venv() + "/bin/pip install --quiet "
		if here.has("uv.lock") { // uv makes environments without pip
			install = "uv pip install --quiet --python " + here.venv() + "/bin/python "
		}
		if pipTools.MatchString(args) {
			return "", ""
		}
		return install + args, ""
	case v.kind == kindInstall && !elsewhere.MatchString(c.text) && p.parts[v.eco.name+":"+c.dir] != nil,
		v.kind == kindNothing && !strings.Contains(c.text, ">"):
		return "", ""
	case inVenv && v.eco != nil && v.eco.name == "python" && v.kind == kindPrepare:
		return v.command, ""
	}
	var words []string
	for _, e := range c.env {
		words = append(words, e.Name+"="+text.Shell(e.Value))
	}
	return strings.Join(append(words, c.text), " "), ""
}

var scriptFile = regexp.MustCompile(`^(?:(?:ba)?sh )?(?:\./)?([\w./-]+\.sh)$`)

// installs reports whether a command is a script of the repository that only installs dependencies, in an environment of its own.
func (d *detector) installs(command string) bool {
	m := scriptFile.FindStringSubmatch(command)
	if m == nil || d.open(m[1]) == nil {
		return false
	}
	found := false
	for _, c := range script(d.open(m[1]).text, d.dir, Position{}) {
		v := d.classify(c.text, 0)
		if c.complex || c.dir != d.dir || v.kind != kindInstall && v.kind != kindNothing {
			return false
		}
		found = found || v.kind == kindInstall
	}
	return found
}

// plainDir makes a directory, which a kept setup may have already.
var plainDir = regexp.MustCompile(`^mkdir (?:-p )?`)

// elsewhere are arguments of an install for another directory.
var elsewhere = regexp.MustCompile(`\s(?:--prefix|--cwd|--dir|-C|--filter|--manifest-path)[= ]`)

var submodulePath = regexp.MustCompile(`(?m)^\s*path\s*=\s*(\S+)`)

// submodules checks them out where a job does, or where a workspace has one as a member.
func (p *plan) submodules() {
	f := p.open(".gitmodules")
	if f == nil {
		return
	}
	needed := slices.ContainsFunc(p.jobs, func(j *job) bool { return j.modules && !j.aside })
	for _, m := range submodulePath.FindAllStringSubmatch(f.text, maxList) {
		needed = needed || slices.Contains(p.members, m[1]) || slices.ContainsFunc(p.patterns, func(pattern string) bool {
			ok, _ := path.Match(strings.TrimPrefix(pattern, "./"), m[1])
			return ok
		})
	}
	if needed {
		p.detector.setup(Position{File: f.name}, "git -c url.https://github.com/.insteadOf=git@github.com: submodule update --init --recursive")
	}
}
