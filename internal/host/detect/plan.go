package detect

import (
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// job is a job of a pipeline that runs for pull requests or the default branch, on Linux, with one row of its matrix.
type job struct {
	name     string
	at       Position
	aside    bool     // it does not judge: coverage, benchmarks, documentation
	env      []Var    // the job's own before the workflow's
	unknown  []Var    // variables without a value, with the reason
	tools    []Tool   // versions that it installs; several as a range
	several  []string // tools of which its matrix has several versions
	services []Service
	commands []step
	modules  bool    // it checks out submodules
	fetches  bool    // it takes what another job built
	biome    *string // how setup installs Biome, which the job has; empty if the manifest names it
	// elsewhere reports that it works in another repository.
	elsewhere bool
}

// step is a command of a job.
type step struct {
	command
	secret  bool   // it needs a secret
	foreign bool   // its script adds a source of packages
	install string // how setup installs its program
	biome   bool   // it runs Biome, which an action installs
	used    bool   // a check or setup has it
	whole   bool   // it is all of its line
	parts   []kind // of the checks that it joins
	verdict        // of a command with a reason before it was judged: it is left out
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
	before map[*job]int // the last command of a job that is a check
}

var (
	// checkJobs are names of jobs that judge, and asideJobs of jobs and workflows that use the code for something else: the versions
	// in them are those that their tools need.
	checkJobs = lazyregexp.New(`(?i)(?:^|[^a-z])` +
		among("tests? unit lint(?:er)? checks? build typecheck types ci verify quality validate") + `(?:[^a-z]|$)`)
	asideJobs = lazyregexp.New(`(?i)(?:^|[^a-z])` +
		among(`coverage codecov coveralls codeql scorecard bench(?:marks?)? docs? doctests? documentation website
		alternative package-manager fuzz(?:ing)? nightly release deploy publish downstream e2e autofix third-party codspeed
		miri msrv min legacy wasm`) + `(?:[^a-z]|$)`)
)

func aside(names ...string) bool { return slices.ContainsFunc(names, asideJobs.MatchString) }

func newPlan(d *detector, jobs []*job) *plan {
	p := &plan{detector: d, jobs: jobs, prior: map[*job]int{}, before: map[*job]int{}}
	for _, j := range jobs {
		for _, c := range j.commands {
			if m := pipCommand.FindStringSubmatch(c.text); m != nil && c.why == "" {
				d.pip += "\n" + m[1]
			}
			if m := toxCommand.FindStringSubmatch(c.text); m != nil && c.why == "" && !j.aside && d.toxEnv == "" {
				d.toxEnv = m[1]
			}
			d.hatched = d.hatched || strings.HasPrefix(c.text, "hatch test") && c.why == ""
		}
	}
	for _, j := range jobs {
		for i := range j.commands {
			p.judge(&j.commands[i])
		}
		j.chains()
	}
	return p
}

// judge classifies a command of a job.
func (p *plan) judge(c *step) {
	packages, rest := Apt(c.text)
	refuse := func(why string) { c.verdict = verdict{kind: kindRefused, why: why} }
	here := &detector{p.source, c.dir}
	switch {
	case c.why != "":
		if v := here.byWords(c.text, 0); v.kind == kindNothing || v.kind == kindInstall {
			c.verdict = verdict{kind: kindNothing}
		}
		return
	case rest == "" && c.foreign && len(packages) > 0:
		refuse(reasonSource)
		return
	case rest == "":
		c.verdict = verdict{kind: kindPrepare, packages: packages}
		return
	case c.dir != "." && !p.isDir(c.dir):
		refuse("the repository has no directory " + c.dir)
		return
	case composeUp.MatchString(c.text), dockerRun.MatchString(c.text):
		c.kind = kindNothing // its services are taken apart
	case c.complex:
		c.verdict = verdict{why: reasonPlain}
	case strings.HasPrefix(c.text, "sudo "):
		refuse(reasonRoot)
	case c.biome:
		c.verdict = here.classify("npx "+c.text, 0)
		if c.install != "" {
			c.verdict.command = strings.Replace(c.verdict.command, "npx biome ", `"$HOME/.local/bin/biome" `, 1)
		}
	case c.install != "":
		program, _, _ := strings.Cut(c.text, " ")
		c.verdict = verdict{eco: &golang, kind: kindLint, tool: program, command: `"$HOME/.local/bin/` + program + `"` + c.text[len(program):]}
	default:
		c.verdict = here.classify(c.text, 0)
	}
	if c.kind.judges() && masked(c.line) {
		refuse(reasonPlaceholder)
	}
	if (c.kind.judges() || c.kind == kindPrepare) && rewritten(c.env) {
		refuse(reasonRewrites)
	}
	if c.kind.judges() && c.secret {
		refuse(reasonSecret)
	}
	other := map[*ecosystem]*ecosystem{&maven: &gradle, &gradle: &maven}[c.eco]
	if t := p.partOf(other, c.dir); t != nil && len(t.checks) > 0 {
		refuse("setup and checks use " + other.name)
	}
	if eco := c.eco; c.kind.judges() && eco != &python && eco != &makefiles && eco != &dotnet && !here.present(eco) {
		refuse("its directory has no " + eco.files[0])
	}
	if c.eco == &rust && strings.Contains(c.text, "--locked") && !here.has("Cargo.lock") {
		refuse("there is no Cargo.lock")
	}
	if c.kind.judges() && helper(c.dir) {
		refuse("its directory does not hold the project itself")
	}
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
			uses := func(part *part) bool {
				return part.eco.uses(t.Name) && (part.eco != &node || t.Name == "node" || t.Name == part.label)
			}
			if !slices.Contains(p.used, j) && !slices.ContainsFunc(p.order, uses) {
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
