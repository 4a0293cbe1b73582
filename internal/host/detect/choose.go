package detect

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

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
	gated := gated(p.jobs)
	for _, j := range p.jobs {
		for i := range j.commands {
			c := &j.commands[i]
			if c.kind.judges() && (!j.aside || p.partOf(c.eco, c.dir) != nil || len(p.order) == 0) {
				p.place(c)
			}
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
			if j, i := p.delegate(t); j != nil && len(p.chosen) == 0 {
				p.chosen, p.prior[j] = []*job{j}, i
				p.use(j)
			}
		}
	}
	p.name()
}

// place reads the part that a command of a job judges, unless other checks judge it, or nothing can.
func (p *plan) place(c *step) {
	inside := func(m string) bool { return c.dir == m || strings.HasPrefix(c.dir, m+"/") }
	switch {
	case c.dir != "." && slices.ContainsFunc(p.members, inside):
		c.kind, c.why = kindOther, "the checks of the root cover "+c.dir
		return
	case c.eco == &makefiles && p.tested(c.dir) && (c.kind == kindTest || c.kind == kindCheck && c.tests):
		c.kind, c.why = kindUnknown, "the tests of the ecosystem run without it"
		return
	}
	if p.part(c.eco, c.dir).broken {
		c.kind, c.why = kindOther, "a manifest of its directory cannot be read"
	}
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
	whole, narrow := p.split(t, k)
	drop := func(all []found, why string) {
		for _, c := range all {
			c.job.commands[c.i].why = why
		}
	}
	take := func(c found) found {
		p.use(c.job)
		p.before[c.job] = max(p.before[c.job], c.i)
		if c.install != "" {
			t.install(c.at, c.install)
		}
		return c
	}
	if k == kindTest {
		return p.chooseTest(t, usual, whole, narrow, take, drop)
	}
	tools := map[string]bool{}
	for _, c := range whole {
		if !tools[c.tool] && (usual < 0 || t.eco != &node || c.task || !gated) {
			tools[c.tool] = true
			chosen = append(chosen, take(c).used())
		}
	}
	if len(chosen) == 0 && len(whole) > 0 {
		chosen = append(chosen, take(whole[0]).used())
	}
	drop(narrow, "it covers a part of the project")
	if usual < 0 || len(chosen) > 0 {
		return chosen
	}
	f := t.checks[usual]
	switch {
	case p.joined(t, k):
		p.omit(f.at, f.command, "a command of a job runs it with others")
		return nil
	case k == kindVet:
	case gated && (t.eco != &python || k == kindLint && !t.d.named("ruff") && !p.named("ruff")):
		p.omit(f.at, f.command, reasonUnrun)
		return nil
	case k == kindBuild && slices.ContainsFunc(outputs, func(o string) bool { return p.isDir(path.Join(t.d.dir, o)) }):
		p.omit(f.at, f.command, "%s", reasonRewrites)
		return nil
	}
	return append(chosen, f)
}

// split divides the commands of jobs for a kind of check into those that cover all of a part, and others.
func (p *plan) split(t *part, k kind) (whole, narrow []found) {
	for _, c := range p.candidates(t, k) {
		switch {
		case k == kindTest && c.job.rootServer():
			c.job.commands[c.i].why = reasonRootServer
		case c.narrow, t.covers != nil && (k == kindTest || k == kindBuild) && !t.covers(c.text):
			narrow = append(narrow, c)
		case !c.job.aside || k == kindTest && len(whole) == 0 && (t.eco != &node || strings.HasPrefix(c.text, t.label+" ")):
			whole = append(whole, c)
		}
	}
	if len(whole) > 0 || t.eco != &rust || k != kindTest {
		return whole, narrow
	}
	// Where no job tests the default features, others are the project's.
	i := slices.IndexFunc(narrow, func(c found) bool {
		rest := strings.ReplaceAll(c.text, " --no-default-features", "")
		return rest != c.text && !cargoPart.MatchString(rest)
	})
	if i >= 0 {
		narrow[i].narrow = false
		whole, narrow = narrow[i:i+1], slices.Delete(slices.Clone(narrow), i, i+1)
	}
	return whole, narrow
}

// used marks the command of a check.
func (f found) used() found {
	f.job.commands[f.i].used = true
	return f
}

// joined reports whether a command that is used joins a check of a kind with others.
func (p *plan) joined(t *part, k kind) bool {
	return slices.ContainsFunc(p.jobs, func(j *job) bool {
		return slices.ContainsFunc(j.commands, func(c step) bool {
			return c.used && c.eco == t.eco && c.dir == t.d.dir && slices.Contains(c.parts, k)
		})
	})
}

// named reports whether a file of those that run checks names a program.
func (d *detector) named(program string) bool {
	runs := strings.Fields(".pre-commit-config.yaml tox.ini noxfile.py Makefile Justfile justfile Taskfile.yml Taskfile.yaml")
	return slices.ContainsFunc(runs, func(name string) bool {
		f := d.open(name)
		return f != nil && strings.Contains(f.text, program)
	})
}

// outputs are directories that builds write, and that a repository should not have.
var outputs = []string{"dist", "build", "out"}

func (p *plan) chooseTest(t *part, usual int, whole, narrow []found, take func(found) found, drop func([]found, string)) []found {
	choose := func(c found) found {
		p.chosen = append(p.chosen, c.job)
		p.prior[c.job] = max(p.prior[c.job], c.i)
		return take(c)
	}
	// A script is the project's own word for its tests; another runner in a job only says what they need.
	replaces := func(c found) bool {
		return usual < 0 || t.eco != &node || c.task && strings.HasPrefix(c.text, t.label+" ") && strings.HasPrefix(c.tool, "test")
	}
	heavy := func(c found) bool { return len(c.job.services) > 0 }
	isLight := func(c found) bool { return !heavy(c) && !c.job.aside && unitOnly.MatchString(c.text) }
	light := slices.IndexFunc(narrow, isLight)
	lightMember := func(c found) bool {
		return !heavy(c) && cargoMember.MatchString(c.text) && !strings.Contains(c.text, "--no-run")
	}
	plain := func(c found) bool { return !cargoPart.MatchString(c.text) }
	part := func(c found) []found {
		f := choose(c).used()
		f.tool, f.narrow = extra(f.command), true
		return []found{f}
	}
	switch {
	case len(whole) > 0:
		drop(narrow, "it covers a part of the tests")
		if i := slices.IndexFunc(whole, replaces); i >= 0 {
			return []found{choose(whole[i]).used()}
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
	case usual >= 0 && p.against(t, t.checks[usual]) != "":
		why := p.against(t, t.checks[usual])
		p.omit(t.checks[usual].at, t.checks[usual].command, "%s", why)
		drop(narrow, "it covers a part of the tests")
		if why == reasonUnrun || why == reasonLibraries {
			t.setup = nil
		}
		return nil
	case usual >= 0 && p.below(t) != "":
		p.omit(t.checks[usual].at, t.checks[usual].command, "the pipelines run the tests in %s", p.below(t))
		return nil
	case usual >= 0 && t.eco == &rust && slices.ContainsFunc(narrow, lightMember) && !slices.ContainsFunc(narrow, plain) && !p.others(t):
		p.omit(t.checks[usual].at, t.checks[usual].command, "the jobs test the packages one by one")
		var chosen []found
		for _, c := range narrow {
			if lightMember(c) {
				f := choose(c).used()
				f.tool, f.narrow = cargoMember.FindStringSubmatch(c.text)[1], true
				chosen = append(chosen, f)
			}
		}
		drop(slices.DeleteFunc(narrow, lightMember), "it covers a part of the tests")
		return chosen
	case usual >= 0:
		drop(narrow, "it covers a part of the tests")
		f := t.checks[usual]
		if i := slices.IndexFunc(narrow, func(c found) bool { return !c.job.aside && c.task && t.d.runs(f.command, c.text, 0) }); i >= 0 {
			c := choose(narrow[i])
			f.env, f.job, f.i = c.env, c.job, c.i
		} else if j, i := p.delegate(t); j != nil {
			p.chosen = append(p.chosen, j)
			p.prior[j] = i
			p.use(j)
			f.env, f.job = j.commands[i].env, j
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
	if m := lazyregexp.New(`(?i)(unit|integration|e2e|system|functional)`).FindStringSubmatch(command); m != nil {
		return strings.ToLower(m[1])
	}
	return "part"
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
			return lazyregexp.New(`\bgo (?:test|vet|mod download)`).ReplaceAllString(command, "$0 "+flag)
		}
		for i := range t.checks {
			t.checks[i].command = add(t.checks[i].command)
		}
		for i := range t.setup {
			t.setup[i].Text = strings.Replace(add(t.setup[i].Text), "go mod download -tags", "go mod download # -tags", 1)
		}
	}
}
