package detect

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

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
		if test := slices.IndexFunc(t.checks, func(f found) bool { return f.kind == kindTest }); test >= 0 && t.eco == &node {
			tests := t.checks[test]
			rank := func(f found) int {
				if f.kind == kindBuild && f.job != nil && f.job == tests.job && f.i < tests.i {
					return 0
				}
				return 1
			}
			slices.SortStableFunc(t.checks, func(a, b found) int { return cmp.Compare(rank(a), rank(b)) })
		}
		build := slices.IndexFunc(t.checks, func(f found) bool { return f.kind == kindBuild && f.job != nil })
		if build > 0 && slices.ContainsFunc(t.checks[:build], func(f found) bool { return f.job != nil && f.job.fetches }) {
			t.checks = slices.Insert(t.checks, 0, t.checks[build])
			t.checks = slices.Delete(t.checks, build+1, build+2)
		}
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
var severalTasks = lazyregexp.New(`^(?:npm-run-all2?|run-s|run-p)((?: [\w:.-]+)+)$`)

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
	if (t.eco == &python || t.eco == &makefiles) && !strings.Contains(f.command, t.d.venv()) && p.partOf(&python, t.d.dir) != nil {
		words = `PATH="` + t.d.venv() + `/bin:$PATH" `
	}
	vars := f.env
	if f.kind == kindTest && f.job != nil { // the task has the others
		vars = append(slices.Clone(vars), f.job.env...)
		i := slices.IndexFunc(vars, func(v Var) bool { return v.Name == nodeOptions })
		vars = vars[max(i, 0) : i+1]
	}
	return p.prefixed(words, f.job, vars, f.command)
}

// prefixed is a command with words and variables before it.
func (p *plan) prefixed(words string, j *job, env []Var, command string) string {
	services := p.Services
	if j != nil {
		services = j.services
	}
	for _, v := range env {
		if !idleVariable.MatchString(v.Name) && !strings.Contains(v.Value, "\n") && !p.leavesSecret(v, services) {
			words += v.Name + "=" + text.Shell(v.Value) + " "
		}
	}
	if words != "" && strings.Contains(command, " && ") {
		words = "export " + words + "&& "
	}
	return words + command
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
	case len(p.Validate) == maxList || !usable(command):
		p.omit(at, command, "it is too long, has characters that cannot be printed, or is after the first %d", maxList)
	default:
		p.Validate = append(p.Validate, Check{name, command, at})
	}
}
