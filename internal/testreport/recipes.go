package testreport

import (
	"path"
	"strings"
)

// Runners of tasks beside make and npm: their files say what a name runs.

// taskFiles are the files of each, jsonTasks the key that has the commands where such a file is JSON.
var (
	taskFiles = map[string][]string{
		"just": {"justfile", "Justfile", ".justfile"}, "task": {"Taskfile.yml", "Taskfile.yaml"},
		"deno": {"deno.json"}, "composer": {"composer.json"},
	}
	jsonTasks = map[string]string{"deno": "tasks", "composer": "scripts"}
)

// recipe compares what a runner of tasks does for the names in its words, and follows it.
func (e *editedChecks) recipe(runner string, args []string, dir string, depth int) {
	for _, file := range taskFiles[runner] {
		p := path.Join(dir, file)
		was, is := e.recipes(0, runner, p), e.recipes(1, runner, p)
		for _, a := range args {
			if was[a] == "" && is[a] == "" {
				continue
			}
			if was[a] != is[a] && was[a] != "" {
				e.flag(p, lineOf(e.texts[1][p], a), "check %q: %s says now: %s", e.check, a, strings.TrimSpace(is[a]))
			}
			for _, text := range []string{was[a], is[a]} {
				for line := range strings.Lines(text) {
					e.command(strings.TrimLeft(strings.TrimSpace(line), "@-"), dir, depth+1)
				}
			}
		}
	}
}

// recipes reads a file once for all words of all commands.
func (e *editedChecks) recipes(side int, runner, p string) map[string]string {
	if e.tasks[side] == nil {
		e.tasks[side] = map[string]map[string]string{}
	}
	all, ok := e.tasks[side][p]
	if !ok {
		if key := jsonTasks[runner]; key != "" {
			all = packageKeys(e.texts[side][p], key)
		} else {
			all = indentedRecipes(e.texts[side][p])
		}
		e.tasks[side][p] = all
	}
	return all
}

// indentedRecipes is what a file says of its names: the lines that are indented below each.
func indentedRecipes(text string) map[string]string {
	const maxOpen = 4 // names that are open at a time, one below the other
	type recipe struct {
		name  string
		depth int
		lines strings.Builder
	}
	all := map[string]string{}
	var open []*recipe
	end := func(depth int) {
		for len(open) > 0 && open[len(open)-1].depth >= depth {
			r := open[len(open)-1]
			open = open[:len(open)-1]
			all[r.name] = r.lines.String()
		}
	}
	for line := range strings.Lines(text) {
		head := strings.TrimSpace(line)
		if head == "" {
			continue
		}
		w := indent(strings.TrimRight(line, "\n"))
		end(w)
		for _, r := range open {
			r.lines.WriteString(strings.TrimPrefix(head, "- ") + "\n")
		}
		// A recipe of just may have parameters behind its name, and "@" before it.
		if m := recipeName.FindStringSubmatch(head); m != nil && len(open) < maxOpen {
			open = append(open, &recipe{name: m[1], depth: w})
		}
	}
	end(0)
	return all
}

var recipeName = re(`^@?([\w.-]+)[^:]*:`)

// globbed flags what was changed among files that a check names by a pattern.
func (e *editedChecks) globbed(pattern string) {
	const maxGlobs = 100
	if e.globs++; e.globs > maxGlobs || e.fs.late() {
		return
	}
	for _, p := range e.paths {
		f := e.changed[p]
		if ok, err := path.Match(pattern, p); err != nil || !ok || p != f.oldPath || f.oldID == f.newID || isProgram(p) {
			continue
		}
		if f.newPath == "" {
			e.flag(p, 0, "check %q runs or reads it, and it is deleted", e.check)
			continue
		}
		e.flag(f.newPath, firstChange(f.oldText, f.newText), "check %q runs or reads it", e.check)
	}
}

// indent is the width of a line's leading blanks.
func indent(line string) (w int) {
	for _, c := range line[:len(line)-len(strings.TrimLeft(line, " \t"))] {
		if w++; c == '\t' {
			w += 3
		}
	}
	return w
}
