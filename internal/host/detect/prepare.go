package detect

import (
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// idleVariable are variables that only a pipeline needs.
var idleVariable = lazyregexp.New(`^` +
	among(`CI CC CXX GITHUB_\w+ GH_\w+ RUNNER_\w+ ACTIONS_\w+ FORCE_COLOR CARGO_TERM_COLOR CARGO_INCREMENTAL RUSTC_WRAPPER
	TERM COLORTERM CODECOV_\w+
	COVERALLS_\w+ NPM_TOKEN NODE_AUTH_TOKEN UV_\w+
	BUNDLE_(?:CLEAN|DEPLOYMENT|FROZEN|JOBS|PATH|RETRY) TURBO_(?:TOKEN|TEAM) PIP_\w+ PYTEST_ADDOPTS \w*CACHE\w* PRE_COMMIT\w*`) + `$`)

// nodeOptions are for the tests: agents are programs of Node, too, and some options break them.
const nodeOptions = "NODE_OPTIONS"

// environment takes the variables of the chosen jobs, the steps' first.
func (p *plan) environment() {
	add := func(v Var) {
		if !idleVariable.MatchString(v.Name) && v.Name != nodeOptions {
			p.placed(v.At, v.Name, v.Value)
		}
	}
	for _, t := range p.order {
		for _, f := range t.checks {
			vars, unknown := f.env, []Var(nil)
			if f.job != nil {
				vars, unknown = append(slices.Clone(vars), f.job.env...), f.job.unknown
			}
			for _, v := range unknown {
				if !idleVariable.MatchString(v.Name) {
					p.omit(v.At, "env."+v.Name, "%s", v.Value)
				}
			}
			if f.kind != kindTest {
				continue
			}
			for _, v := range vars {
				add(v)
			}
		}
	}
}

// leads reports whether a chosen job has services and sets variables: these belong together, and the dev container's come after them.
func (p *plan) leads() bool {
	for _, t := range p.order {
		for _, f := range t.checks {
			if f.kind == kindTest && f.job != nil && len(f.job.services) > 0 && len(special(f.env))+len(special(f.job.env)) > 0 {
				return true
			}
		}
	}
	return false
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
		for i := range j.commands {
			c := &j.commands[i]
			prior, chosen := p.prior[j]
			needed := c.verdict.command == "" || chosen && i < prior || c.task && i < p.before[j]
			if c.kind != kindPrepare || !needed {
				continue
			}
			c.used = true
			p.need(c.at, c.packages...)
			if c.verdict.command != "" {
				p.detector.setup(c.at, in(c.dir, p.prefixed("", j, c.env, c.verdict.command)))
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
	if rewritten(c.env) {
		why = reasonRewrites
	}
	switch {
	case lazyregexp.New(`(?:^|[\s;&|])sudo\s`).MatchString(c.text):
		p.omit(c.at, c.text, "it needs root, which setup does not have")
		return "", ""
	case why != "":
		return "", why
	case c.complex:
	case v.kind == kindInstall && v.eco == &python && pipCommand.MatchString(c.text):
		args := strings.TrimPrefix(pipCommand.FindStringSubmatch(c.text)[1], "--user ")
		if p.partOf(&python, c.dir) == nil {
			p.omit(c.at, c.text, "no part of the project has an environment of Python")
			return "", ""
		}
		install := here.venv() + "/bin/pip install --quiet "
		if here.has("uv.lock") { // uv makes environments without pip
			install = "uv pip install --quiet --python " + here.venv() + "/bin/python "
		}
		if pipTools.MatchString(args) {
			return "", ""
		}
		return install + args, ""
	case v.kind == kindInstall && !elsewhere.MatchString(c.text) && p.partOf(v.eco, c.dir) != nil,
		v.kind == kindNothing && !strings.Contains(c.text, ">"):
		return "", ""
	case p.lacks(c.text):
		return "", "the sandbox does not have its program"
	case inVenv && v.eco != nil && v.eco.name == "python" && v.kind == kindPrepare:
		return v.command, ""
	}
	var words []string
	if _, content, ok := shellTask(here, c.text); ok && inVenv && scriptPip.MatchString(content) && !here.has("uv.lock") {
		words = append(words, `PATH="`+here.venv()+`/bin:$PATH"`)
	}
	for _, e := range c.env {
		if !p.leavesSecret(e, p.Services) {
			words = append(words, e.Name+"="+text.Shell(e.Value))
		}
	}
	return strings.Join(append(words, c.text), " "), ""
}

// lacks reports whether a command runs a program that the sandbox does not have, and that no command of setup names.
func (p *plan) lacks(command string) bool {
	m := missing.FindStringSubmatch(command)
	return m != nil && strings.HasPrefix(command, m[1]) && !strings.HasPrefix(m[1], "docker") &&
		!slices.ContainsFunc(p.Setup, func(i Item) bool { return strings.Contains(i.Text, m[1]) })
}

// scriptPip is a line of a script that installs with the pip that it finds.
var scriptPip = lazyregexp.New(`(?m)^\s*(?:python3? -m )?pip3? install\s`)

var scriptFile = lazyregexp.New(`^(?:(?:ba)?sh )?(?:\./)?([\w./-]+\.sh)$`)

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

// elsewhere are arguments of an install for another directory.
var elsewhere = lazyregexp.New(`\s(?:--prefix|--cwd|--dir|-C|--filter|--manifest-path)[= ]`)

var submodulePath = lazyregexp.New(`(?m)^\s*path\s*=\s*(\S+)`)

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
