package testreport

import (
	"maps"
	"path"
	"slices"
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
	for _, name := range taskFiles[runner] {
		p := path.Join(dir, name)
		for _, a := range args {
			was, is := recipeOf(runner, e.texts[0][p], a), recipeOf(runner, e.texts[1][p], a)
			if was != is && was != "" && !stricter(was, is, false) {
				e.flag(p, lineOf(e.texts[1][p], a), "check %q: %s says now: %s", e.check, a, strings.TrimSpace(is))
			}
			for _, text := range []string{was, is} {
				for line := range strings.Lines(text) {
					e.command(strings.TrimLeft(strings.TrimSpace(line), "@-"), dir, depth+1)
				}
			}
		}
	}
}

// recipeOf is what a file says of a name: the lines that are indented below it, or the value of a key.
func recipeOf(runner, text, name string) string {
	if key := jsonTasks[runner]; key != "" {
		return packageKeys(text, key)[name]
	}
	var out strings.Builder
	depth := -1 // of the name
	for line := range strings.Lines(text) {
		w := indent(strings.TrimRight(line, "\n"))
		switch head := strings.TrimSpace(line); {
		case head == "":
		case depth >= 0 && w > depth:
			out.WriteString(strings.TrimPrefix(head, "- ") + "\n")
		case depth >= 0:
			return out.String()
		case strings.Contains(head, ":") && strings.TrimLeft(strings.FieldsFunc(head, func(r rune) bool { return r == ' ' || r == ':' })[0], "@") == name:
			depth = w
		}
	}
	return out.String()
}

// globbed flags what was changed among files that a check names by a pattern.
func (e *editedChecks) globbed(pattern string) {
	for _, p := range slices.Sorted(maps.Keys(e.changed)) {
		f := e.changed[p]
		if ok, err := path.Match(pattern, p); err != nil || !ok || p != f.oldPath || f.oldID == f.newID || languageOf(p) != nil {
			continue
		}
		switch {
		case f.newPath == "":
			e.flag(p, 0, "check %q runs or reads it, and it is deleted", e.check)
		case !stricter(f.oldText, f.newText, false):
			e.flag(f.newPath, firstChange(f.oldText, f.newText), "check %q runs or reads it", e.check)
		}
	}
}
