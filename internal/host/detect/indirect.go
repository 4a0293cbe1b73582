package detect

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// indirect judges a command that runs others: a runner of a workspace's tasks, or a script of the repository.
func indirect(d *detector, text string, depth int) (verdict, bool) {
	if v, ok := runner(d, text); ok {
		return v, true
	}
	v := shellScript(d, text, depth)
	return v, v.kind.judges()
}

var (
	// runnerForm is a program that runs tasks of all members of a workspace.
	runnerForm = lazyregexp.New(`^((?:npx|yarn|pnpm(?: exec)?|bunx|npm exec)(?: --)? )?` +
		`(nx (?:affected|run-many)|turbo(?: run)?)((?::[\w-]+)?(?: .*)?)$`)
	runnerTasks = lazyregexp.New(`(?:\s(?:-t|--targets?)[= ]|^:)([\w:-]+(?:[, ][\w:-]+)*)`)
	runnerKeeps = lazyregexp.New(`\s--(?:exclude|configuration)[= ]\S+`)
)

// runner is a command of nx or turbo for the tasks that judge: in all members, not only in those that a change reaches.
func runner(d *detector, text string) (v verdict, ok bool) {
	m := runnerForm.FindStringSubmatch(text)
	if m == nil {
		return v, false
	}
	program, _, _ := strings.Cut(m[2], " ")
	tasks := runnerTasks.FindStringSubmatch(m[3])
	if program == "turbo" {
		first, _, _ := strings.Cut(m[3], " -")
		tasks = []string{"", strings.TrimSpace(first)}
	}
	if !d.manifest().depends(program) || tasks == nil || strings.Contains(m[3], "--filter") || strings.Contains(m[3], " -p") {
		return v, false
	}
	var names []string
	v = verdict{eco: &node, task: true}
	for name := range strings.FieldsFuncSeq(tasks[1], func(r rune) bool { return r == ' ' || r == ',' }) {
		k := kind(strings.Replace(name, "type-check", "typecheck", 1))
		if !slices.Contains(strings.Fields("test lint typecheck build"), string(k)) {
			continue
		}
		names = append(names, name)
		if v.kind == "" || order(k) < order(v.kind) {
			v.kind, v.tool = k, name
		}
	}
	launcher := cmp.Or(m[1], "npx ")
	if program == "nx" {
		v.command = "NX_NO_CLOUD=true " + launcher + "nx run-many -t " + strings.Join(names, " ") +
			strings.Join(runnerKeeps.FindAllString(m[3], maxList), "")
	} else {
		v.command = launcher + "turbo run " + strings.Join(names, " ")
	}
	return v, len(names) > 0
}

// shellScript judges a script of the repository by its commands, of which one has to be a check that is known.
func shellScript(d *detector, text string, depth int) verdict {
	name, content, ok := shellTask(d, text)
	if !ok || strings.Contains(text, " -") || depth == maxTaskDepth {
		return verdict{}
	}
	v := verdict{eco: &makefiles, command: text, tool: shortName(name), task: true}
	for _, c := range script(content, d.dir, Position{}) {
		inner := d.byWords(strings.TrimSpace(scriptRest.ReplaceAllString(c.text, "")), depth+1)
		switch {
		case c.complex, inner.kind == kindOther, inner.kind == kindRefused, c.dir != d.dir, inner.kind.judges() && inner.eco == nil:
			return verdict{}
		case inner.kind.judges() && (!v.kind.judges() || order(inner.kind) < order(v.kind)):
			v.eco, v.kind, v.narrow = inner.eco, inner.kind, inner.narrow
		}
	}
	return v
}

// scriptRest are the arguments of a script.
var scriptRest = lazyregexp.New(`\s["']?\$(?:[@*]|\{@\})["']?`)
