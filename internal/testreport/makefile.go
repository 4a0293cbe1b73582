package testreport

import (
	"cmp"
	"path"
	"slices"
	"strings"

	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
)

// makefile is what a Makefile says, as far as it can be read without make.
type makefile struct {
	targets map[string]*makeTarget
	vars    map[string]string
	first   string
}

type makeTarget struct {
	needs  []string
	recipe []string
}

var makeVariable = re(`^\s*(?:export\s+|override\s+)*(\.?[A-Za-z_][\w.-]*)\s*(?:::?:?|\?|\+)?=\s*(.*)$`)

// maxMakeValue bounds a variable, in bytes, maxMakeNames the targets of one rule.
const (
	maxMakeValue = 2000
	maxMakeNames = 100
)

// parseMake reads rules and variables. Lines of make's own language are passed over.
func parseMake(text string) *makefile {
	m := &makefile{targets: map[string]*makeTarget{}, vars: map[string]string{}}
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", " ")
	var open []*makeTarget
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "\t") {
			for _, t := range open {
				t.recipe = append(t.recipe, squeeze(line))
			}
			continue
		}
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		open = nil
		if v := makeVariable.FindStringSubmatch(line); v != nil {
			m.vars[v[1]] = texts.Short(strings.TrimSpace(m.vars[v[1]]+" "+v[2]), maxMakeValue)
			continue
		}
		names, rest, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, " ") {
			continue
		}
		if strings.Contains(rest, "=") && !strings.Contains(rest, ";") { // a variable of one target
			rest = ""
		}
		needs, recipe, has := strings.Cut(strings.TrimLeft(rest, ":"), ";")
		targets := strings.Fields(names)
		for _, n := range targets[:min(len(targets), maxMakeNames)] {
			t := m.targets[n]
			if t == nil {
				t = &makeTarget{}
				m.targets[n] = t
			}
			t.needs = append(t.needs, strings.Fields(needs)...)
			if has {
				t.recipe = append(t.recipe, squeeze(recipe))
			}
			if m.first == "" && !strings.HasPrefix(n, ".") {
				m.first = n
			}
			open = append(open, t)
		}
	}
	return m
}

var makeUse = re(`\$[({]([A-Za-z_][\w.-]*)[)}]`)

// says is all that a target consists of, variables included. Its prerequisites are looked at on their own.
func (m *makefile) says(name string) string {
	t := m.targets[name]
	if t == nil {
		return ""
	}
	out := append(slices.Clone(t.recipe), strings.Join(t.needs, " "))
	seen := map[string]bool{}
	for i := 0; i < len(out) && i < 200; i++ {
		for _, u := range makeUse.FindAllStringSubmatch(out[i], 50) {
			if v := m.vars[u[1]]; v != "" && !seen[u[1]] {
				seen[u[1]] = true
				out = append(out, u[1]+"="+v)
			}
		}
	}
	return strings.Join(out, "\n")
}

// expanded is a recipe's line with the variables that are known.
func (m *makefile) expanded(line string) string {
	for range 3 {
		next := makeUse.ReplaceAllStringFunc(line, func(u string) string {
			if v, ok := m.vars[makeUse.FindStringSubmatch(u)[1]]; ok {
				return v
			}
			return u
		})
		if next == line || len(next) > 20_000 {
			break
		}
		line = next
	}
	return line
}

// makeTargets compares the targets that a make runs, with all that they need.
func (e *editedChecks) makeTargets(args []string, dir string, depth int) {
	file := ""
	var names []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case (a == "-C" || a == "--directory") && i+1 < len(args):
			i++
			dir = path.Join(dir, args[i])
		case (a == "-f" || a == "--file") && i+1 < len(args):
			i++
			file = args[i]
		case strings.HasPrefix(a, "-"), strings.Contains(a, "="):
		default:
			names = append(names, a)
		}
	}
	from := [2]string{e.makefileOf(0, dir, file), e.makefileOf(1, dir, file)}
	p := cmp.Or(from[1], from[0])
	if p == "" {
		return
	}
	var says [2]string
	for i, f := range from {
		// Included parts count as one text.
		says[i] = e.texts[i][f] + e.included(i, e.texts[i][f], dir)
	}
	a, b := parseMake(says[0]), parseMake(says[1])
	if len(names) == 0 {
		names = []string{a.first}
	}
	e.targets(p, says[1], dir, a, b, names, depth)
}

// makefiles are the names that make looks for, in its order: the first that is there hides the others.
var makefiles = []string{"GNUmakefile", "makefile", "Makefile"}

// makefileOf is the file that make reads in a folder of one side; named is what its words name. "" means there is none.
func (e *editedChecks) makefileOf(side int, dir, named string) string {
	names := makefiles
	if named != "" {
		names = []string{named}
	}
	for _, f := range names {
		p := path.Join(dir, f)
		if _, ok := e.texts[side][p]; ok {
			return p
		}
	}
	return ""
}

var makeInclude = re(`(?m)^-?include\s+(.+)$`)

func (e *editedChecks) included(side int, text, dir string) string {
	var out strings.Builder
	for _, m := range makeInclude.FindAllStringSubmatch(text, 20) {
		for f := range strings.FieldsSeq(m[1]) {
			out.WriteString("\n" + e.texts[side][path.Join(dir, f)])
		}
	}
	return out.String()
}

// steering variables of make decide how everything it runs ends.
var steeringVars = []string{"SHELL", ".SHELLFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS", "GOFLAGS", "PYTEST_ADDOPTS", "NODE_OPTIONS", "CARGO_FLAGS", "RUSTFLAGS", "MAVEN_OPTS"}

var strictShell = re(`^(?:(?:/bin/|/usr/bin/env |/usr/bin/)?(?:ba)?sh)?(?: ?-[euoxc]+| pipefail)*$`)

// steers flags what changes the meaning of all targets of a Makefile that there was before.
func (e *editedChecks) steers(p, text string, a, b *makefile) {
	if len(a.targets) == 0 {
		return
	}
	for _, v := range steeringVars {
		// A stricter shell than make's own is no way around anything.
		if a.vars[v] != b.vars[v] && (a.vars[v] != "" || !strictShell.MatchString(b.vars[v])) {
			e.flag(p, lineOf(text, v), "check %q: %s is %q now", e.check, v, b.vars[v])
		}
	}
	const ignore = ".IGNORE"
	if a.says(ignore) != b.says(ignore) || (a.targets[ignore] == nil) != (b.targets[ignore] == nil) {
		e.flag(p, lineOf(text, ignore), "check %q: failures are ignored now", e.check)
	}
}

func (e *editedChecks) targets(p, text, dir string, a, b *makefile, names []string, depth int) {
	const maxTargets = 300
	e.steers(p, text, a, b)
	queue, seen := slices.Clone(names), map[string]bool{}
	for len(queue) > 0 && len(seen) < maxTargets {
		n := queue[0]
		queue = queue[1:]
		if seen[n] {
			continue
		}
		seen[n] = true
		if was, is := a.says(n), b.says(n); was != is && (len(a.targets) > 0 || len(a.vars) > 0) {
			removed, added := changedLines(was, is)
			switch {
			case is == "":
				e.flag(p, 0, "check %q: the target %s is gone", e.check, n)
			case len(added) > 0:
				e.flag(p, lineOf(text, "\n"+n+":")+1, "check %q: the target %s says now: %s", e.check, n, added[0])
			case len(removed) > 0:
				e.flag(p, lineOf(text, "\n"+n+":")+1, "check %q: the target %s does not say any more: %s", e.check, n, removed[0])
			}
		}
		for _, m := range []*makefile{a, b} {
			if t := m.targets[n]; t != nil {
				queue = append(queue, t.needs...)
				for _, line := range t.recipe {
					e.command(strings.TrimLeft(m.expanded(line), "@-+ "), dir, depth+1)
				}
			}
		}
	}
}
