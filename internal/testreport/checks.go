package testreport

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxCommandDepth is how far a check is followed through make, npm and scripts.
	maxCommandDepth = 5
	// maxSegments bounds the commands that one check is followed through in all.
	maxSegments = 2000
)

// editedChecks follows the validate commands on both sides to what they run and read.
type editedChecks struct {
	fs      *flagger
	c       *change
	changed map[string]*fileChange          // by either path
	texts   [2]map[string]string            // of files that say what is run, by path, base and head
	paths   []string                        // of changed, in order
	tasks   [2]map[string]map[string]string // what runners of tasks do, by file and name, base and head
	globs   int                             // patterns that were looked up
	done    map[string]bool
	left    int
	check   string
	within  int  // scripts that the command runs, one inside the other
	setup   bool // it is a command of the setup
	looked  bool // the command looks at what a program prints
}

// steering are files in which commands are written.
var steering = re(`(?:^|/)(?:[Mm]akefile|GNUmakefile|package\.json|deno\.json|composer\.json|\.?[jJ]ustfile|Taskfile\.ya?ml)$|\.mk$|\.(?:sh|bash)$|(?:^|/)(?:scripts?|bin|ci|\.ci|tools|hack|script)/[\w-]+$`)

// findEdited flags changes of what the checks consist of.
func (fs *flagger) findEdited(c *change, o Observed) error {
	if len(o.Commands)+len(o.Setup) == 0 || len(c.files) == 0 {
		return nil
	}
	e := &editedChecks{fs: fs, c: c, changed: map[string]*fileChange{}, done: map[string]bool{}, left: maxSegments}
	for _, f := range c.files {
		if f.oldPath != "" {
			e.changed[f.oldPath] = f
		}
		if f.newPath != "" {
			e.changed[f.newPath] = f
		}
	}
	e.paths = slices.Sorted(maps.Keys(e.changed))
	for i, commit := range []string{c.base, c.head} {
		list, err := c.tree(commit, func(p string) bool { return steering.MatchString(p) && strings.Count(p, "/") <= maxFolders })
		if err != nil {
			return err
		}
		list = list[:min(len(list), maxReports)]
		ids := make([]string, len(list))
		for j, t := range list {
			ids[j] = t.id
		}
		if err := c.load(ids); err != nil {
			return err
		}
		e.texts[i] = map[string]string{}
		for _, t := range list {
			e.texts[i][t.path] = c.texts[t.id]
		}
	}
	for i, commands := range []map[string]string{o.Commands, o.Setup} {
		for _, n := range slices.Sorted(maps.Keys(commands)) {
			e.check, e.setup, e.looked = n, i == 1, prints.MatchString(commands[n])
			e.command(commands[n], "", 0)
		}
	}
	return nil
}

func (e *editedChecks) flag(p string, line int, format string, args ...any) {
	e.fs.line(workorder.FlagCheckEdited, p, line, fmt.Sprintf(format, args...))
}

// command follows one command line, and what it runs in turn.
func (e *editedChecks) command(cmd, dir string, depth int) {
	key := dir + "\x00" + cmd
	if depth > maxCommandDepth || e.done[key] || e.left <= 0 || e.fs.late() {
		return
	}
	e.done[key] = true
	for _, words := range segments(cmd) {
		if e.left--; e.left <= 0 {
			return
		}
		whole := strings.Join(words, " ")
		words = unwrapped(words)
		if len(words) == 0 {
			continue
		}
		if words[0] == "cd" && len(words) > 1 {
			dir = path.Join(dir, words[1])
			continue
		}
		e.program(words, dir, depth)
		e.named(words, dir, depth)
		e.configured(whole, dir) // npx, which only surrounds a command, reads files, too
	}
}

func (e *editedChecks) program(words []string, dir string, depth int) {
	args := words[1:]
	switch path.Base(words[0]) {
	case "npm", "yarn", "pnpm", "bun":
		if slices.ContainsFunc(args, workspaces.MatchString) {
			e.workspaces(args, depth)
		}
		if i := slices.IndexFunc(args, func(a string) bool { return a == "--prefix" || a == "-C" || a == "--cwd" || a == "--dir" }); i >= 0 && i+1 < len(args) {
			dir = path.Join(dir, args[i+1])
			args = slices.Delete(slices.Clone(args), i, i+2)
		}
		args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
		if len(args) > 1 && (args[0] == "run" || args[0] == "run-script" || args[0] == "workspaces") {
			args = args[1:]
		}
		if len(args) > 0 {
			n := args[0]
			if n == "t" || n == "tst" {
				n = "test"
			}
			for _, s := range []string{"pre" + n, n, "post" + n} {
				e.npmScript(dir, s, depth)
			}
		}
	case "just", "task", "deno", "composer":
		e.recipe(path.Base(words[0]), args, dir, depth)
	case "make", "gmake":
		e.makeTargets(args, dir, depth)
	case "sh", "bash", "zsh", "dash":
		if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") && strings.HasSuffix(a, "c") }); i >= 0 && i+1 < len(args) {
			e.command(args[i+1], dir, depth+1)
		}
	}
}

// workspaces follows the scripts that the words of a command may name in every package below.
func (e *editedChecks) workspaces(args []string, depth int) {
	if e.done["workspaces"] {
		return
	}
	e.done["workspaces"] = true
	for _, p := range slices.Sorted(maps.Keys(e.texts[1])) {
		if path.Base(p) == "package.json" && strings.Contains(p, "/") {
			for _, a := range args {
				e.npmScript(path.Dir(p), a, depth)
			}
		}
	}
}

var workspaces = re(`^(?:-w|-r|--workspaces?|--recursive|--filter|-F|workspaces?|foreach)(?:=|$)`)

var interpreter = re(`^(?:.*/)?(?:python[\d.]*|node|ruby|perl|php|sh|bash|zsh|source|\.|tsx|ts-node|deno|bun|run|--config|-c|--rcfile|--config-file|-f|--file|--ini)$`)

// named flags changed files that the words of a command name, and follows scripts.
func (e *editedChecks) named(words []string, dir string, depth int) {
	for i, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok && strings.HasPrefix(k, "-") {
			w = v
		}
		if strings.Contains(w, "*") && !strings.ContainsAny(w, "$ ") {
			e.globbed(path.Join(dir, w))
			continue
		}
		if w == "" || strings.ContainsAny(w, "$ ") {
			continue
		}
		p := path.Join(dir, w)
		lead := i == 0 || interpreter.MatchString(words[i-1])
		f := e.changed[p]
		if f != nil && f.oldID != f.newID {
			e.touched(f, p, lead)
		}
		if lead || strings.HasSuffix(p, ".sh") {
			e.script(p, dir, depth)
		}
	}
}

// touched flags a changed file that a check names; lead says that it is run.
func (e *editedChecks) touched(f *fileChange, p string, lead bool) {
	program := isProgram(p) || strings.HasSuffix(p, "sh")
	switch {
	case ofTests(p): // it is listed as an edited test
	case e.within > 0 && program && !ofChecks.MatchString(p):
		// A check's script most often runs what it checks.
	case e.setup && !program:
		// Installed and loaded files are the product's.
	case lead && e.looked && !ofChecks.MatchString(p):
		// The command looks at its output: it is what is checked.
	case lead || !program && f.oldPath != "": // a file that it reads and that was not there is what the check asked for
		e.flag(p, firstChange(f.oldText, f.newText), "check %q runs or reads it", e.check)
	}
}

// prints is where a command looks at what another one prints.
var prints = re(`(?:^|[^|])\|(?:[^|]|$)|\$\(|<\(|\x60`)

// ofChecks are names of programs that check others.
var ofChecks = re(`(?i)(?:^|[/_.-])(?:e2e|(?:tests?|specs?|checks?|lint|verify|validate|expect|assert|smoke)[a-z]*)(?:[/_.-]|$)|(?:^|/)(?:ci|\.ci|scripts?|hack)/`)

// script follows the lines of a shell script, as it is on base and on head.
func (e *editedChecks) script(p, dir string, depth int) {
	e.within++
	defer func() { e.within-- }()
	for _, side := range e.texts {
		text, ok := side[p]
		if !ok || !isShell(p, text) {
			continue
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				e.command(line, scriptDir(text, dir), depth+1)
			}
		}
	}
}

func isShell(p, text string) bool {
	first, _, _ := strings.Cut(text, "\n")
	return strings.HasSuffix(p, "sh") || strings.HasPrefix(first, "#!") && strings.Contains(first, "sh")
}

// scriptDir is where a script's words are looked up: it often changes to the repository first.
func scriptDir(text, dir string) string {
	if strings.Contains(text, "cd \"$(dirname") || strings.Contains(text, "git rev-parse --show-toplevel") {
		return ""
	}
	return dir
}

// npmScript compares a script of package.json and follows both of its sides.
func (e *editedChecks) npmScript(dir, name string, depth int) {
	p := path.Join(dir, "package.json")
	was, is := packageKeys(e.texts[0][p], "scripts")[name], packageKeys(e.texts[1][p], "scripts")[name]
	if was != is && (was != "" || name == "test" || e.texts[0][p] != "") {
		e.flag(p, lineOf(e.texts[1][p], `"`+name+`"`), "check %q: the script %s was %q and is %q", e.check, name, was, is)
	}
	for _, s := range []string{was, is} {
		if s != "" {
			e.command(s, dir, depth+1)
		}
	}
}

// lineOf is the line, from 1, that has a text; 0 for none.
func lineOf(text, part string) int {
	before, _, ok := strings.Cut(text, part)
	if !ok {
		return 0
	}
	return 1 + strings.Count(before, "\n")
}

// firstChange is the first line of the new text, from 1, that the old one does not have there.
func firstChange(was, is string) int {
	a, b := strings.Split(was, "\n"), strings.Split(is, "\n")
	for i := range b {
		if i >= len(a) || a[i] != b[i] {
			return i + 1
		}
	}
	return len(b)
}

// changedLines are the lines that only one side has.
func changedLines(was, is string) (removed, added []string) {
	count := map[string]int{}
	for l := range strings.Lines(is) {
		count[squeeze(l)]++
	}
	for l := range strings.Lines(was) {
		if l = squeeze(l); count[l] > 0 {
			count[l]--
		} else if l != "" {
			removed = append(removed, l)
		}
	}
	for l := range strings.Lines(is) {
		if l = squeeze(l); count[l] > 0 {
			count[l]--
			if l != "" {
				added = append(added, l)
			}
		}
	}
	return removed, added
}

var wrapper = pattern.New(`^(?:sudo|env|time|nice|exec|command|xvfb-run|npx|bunx|pnpx|uv|poetry|pipenv|hatch|bundle|exec|rye|pdm|dotenv|cross-env|nohup|then|do|else|if|!|@|-|\(|\{)$|^[A-Za-z_]\w*=|^timeout$|^\d+[smh]?$`)

// unwrapped takes off what only surrounds a command.
func unwrapped(words []string) []string {
	for len(words) > 1 && wrapper.MatchString(words[0]) {
		n := 1
		for n < len(words)-1 && strings.HasPrefix(words[n], "-") {
			n++
		}
		words = words[n:]
		if len(words) > 1 && words[0] == "run" { // poetry run, uv run
			words = words[1:]
		}
	}
	if len(words) > 0 {
		words[0] = strings.TrimLeft(words[0], "@-+(")
	}
	return words
}

// segments cuts a line for a shell into simple commands and these into words, as
// far as that goes without running it.
func segments(cmd string) (out [][]string) {
	var words []string
	var word strings.Builder
	quote, in := byte(0), false
	end := func() {
		if in {
			words = append(words, word.String())
		}
		word.Reset()
		in = false
	}
	for i := 0; i < len(cmd); i++ {
		c := cmd[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteByte(c)
			}
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == '\\' && i+1 < len(cmd):
			i++
			if cmd[i] != '\n' {
				word.WriteByte(cmd[i])
				in = true
			}
		case c == ' ' || c == '\t' || c == '\r':
			end()
		case c == '#' && !in:
			for i+1 < len(cmd) && cmd[i+1] != '\n' {
				i++
			}
		case strings.IndexByte(";&|\n()`", c) >= 0:
			end()
			if len(words) > 0 {
				out = append(out, words)
				words = nil
			}
		default:
			word.WriteByte(c)
			in = true
		}
	}
	end()
	if len(words) > 0 {
		out = append(out, words)
	}
	return out
}
