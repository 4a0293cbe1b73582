package surface

import (
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// meaning is the lines that only one side has, without blank lines and comments.
func meaning(c *change, ls []line) []line {
	var out []line
	for _, l := range ls {
		if t := strings.TrimSpace(l.text); t != "" && !isComment(c, t) {
			if !c.spend(min(len(t), maxCommand)) {
				break
			}
			out = append(out, l)
		}
	}
	return out
}

// noHash are files in which a hash sign begins no comment, slashed those in which two slashes do.
var (
	noHash  = map[string]bool{".md": true, ".mdc": true, ".js": true, ".cjs": true, ".mjs": true, ".ts": true, ".json": true, ".jsonc": true, ".rs": true, ".go": true, ".kt": true, ".kts": true, ".gradle": true, ".c": true, ".h": true, ".vim": true, ".vimrc": true, ".exrc": true, ".el": true, ".bat": true, ".cmd": true, ".xml": true, ".lua": true, ".csproj": true}
	slashed = map[string]bool{".js": true, ".cjs": true, ".mjs": true, ".ts": true, ".json": true, ".jsonc": true, ".json5": true, ".rs": true, ".go": true, ".kt": true, ".kts": true, ".gradle": true, ".swift": true, ".bazel": false}
)

// isComment reports whether a trimmed line says nothing to the program that reads it. In doubt it does.
func isComment(c *change, t string) bool {
	ext := c.ext()
	switch {
	case strings.HasPrefix(t, "#!"), strings.HasPrefix(t, "//go:"), strings.HasPrefix(t, "//export"):
		return false
	case t[0] == '#':
		return !noHash[ext] && !strings.HasPrefix(strings.TrimSpace(t[1:]), "///") && !dockerDirective.MatchString(t)
	case strings.HasPrefix(t, "//"):
		return slashed[ext] || strings.HasPrefix(c.base(), "jenkinsfile")
	case strings.HasPrefix(t, "<!--"):
		return ext != ".md" && ext != ".mdc" && strings.HasSuffix(t, "-->") && strings.Count(t, "-->") == 1
	case t[0] == ';':
		return c.base() == ".npmrc" || ext == ".ini" || ext == ".conf" || ext == ".el"
	}
	return false
}

// dockerDirective is a comment that a builder obeys.
var dockerDirective = pattern.New(`(?i)^#\s*(syntax|escape|check)\s*=`)

// checkSettings reports any change that is not a comment: the file is short or rarely changed, and what it says counts.
func checkSettings(c *change, s *sink) { reportLines(c, s, c.rule.kind, c.rule.unasked, nil) }

// checkSuspicious reports only lines that a review should stop at: the file changes often.
func checkSuspicious(c *change, s *sink) {
	c.diff()
	for _, l := range meaning(c, c.added) {
		if why := oddity(l.text, false); why != "" {
			s.add(c.rule.kind, l.n, true, "%s: %s", why, quote(l.text))
		}
	}
}

// reportLines reports new lines that want fits (nil means all), and what is odd in any. Where there is none, it
// says what went away or moved.
func reportLines(c *change, s *sink, kind string, grave bool, want *pattern.Pattern) {
	if c.deleted() {
		if want == nil {
			s.add(kind, 0, false, "removed")
		}
		return
	}
	c.diff()
	added := meaning(c, c.added)
	verb := "new"
	if c.created() {
		verb = "new file"
	}
	n := 0
	for _, l := range added {
		why := suspicious(l.text)
		switch {
		case why != "":
			s.add(kind, l.n, true, "%s: %s", why, quote(l.text))
		case want != nil && !want.MatchString(l.text):
			continue
		case bracket(l.text): // says nothing by itself
			continue
		default:
			s.add(kind, l.n, grave, "%s: %s", verb, quote(l.text))
		}
		n++
	}
	if n > 0 || want != nil {
		return
	}
	removed := meaning(c, c.removed)
	switch {
	case len(removed) > 0:
		s.add(kind, 0, false, "removed: %s", quote(removed[0].text))
	case len(added) > 0:
		s.add(kind, added[0].n, grave, "%s: %s", verb, quote(added[0].text))
	case c.created():
		s.add(kind, 0, grave, "new file without a line that says something")
	case !sameMeaning(c):
		s.add(kind, 0, grave, "lines have another order")
	}
}

// bracket is a line of punctuation only.
func bracket(t string) bool { return strings.Trim(t, " \t{}[](),;") == "" }

// sameMeaning compares both sides without comments and blank lines.
func sameMeaning(c *change) bool {
	keep := func(content string) string {
		var b strings.Builder
		for _, l := range splitLines(content) {
			if t := strings.TrimSpace(l); t != "" && !isComment(c, t) {
				b.WriteString(l)
				b.WriteByte('\n')
			}
		}
		return b.String()
	}
	return keep(c.old) == keep(c.new)
}

// checkAgent reports settings of agents. JSON is compared by value, so that a changed order is no change.
func checkAgent(c *change, s *sink) {
	if ext := c.ext(); ext != ".json" && ext != ".jsonc" || c.deleted() {
		checkSettings(c, s)
		return
	}
	reportLeaves(c, s, c.rule.kind, func(l leaf) bool { return !l.has("$schema") && !l.has("deny") })
}

// checkProject reports project files of this tool: they choose the hosts that tokens go to, and commands that run on
// the machine of whoever uses them. A file in a folder called projects may be anything, so it is mild but for such commands.
func checkProject(c *change, s *sink) {
	reportLines(c, s, c.rule.kind, c.rule.unasked, nil)
	for _, l := range meaning(c, c.added) {
		if strings.Contains(strings.ToLower(l.text), "cmd://") {
			s.add(c.rule.kind, l.n, true, "runs a command on the machine of whoever uses it: %s", quote(l.text))
		}
	}
}

// checkInstructions reports texts that agents obey: mild, as they change with the code, save for commands in them
// that a review should stop at, and for words that are meant to be hidden from people.
func checkInstructions(c *change, s *sink) {
	reportLines(c, s, c.rule.kind, false, nil)
	c.diff()
	for _, l := range c.added {
		if orders.MatchString(l.text) {
			s.add(c.rule.kind, l.n, true, "tells the agent to hide or to overrule: %s", quote(l.text))
		}
	}
}

// orders are words of instructions that are meant for agents and against their users.
var orders = pattern.New(`(?i)(ignore|disregard|forget|override)\s+(all\s+|any\s+|the\s+|your\s+)*(previous|prior|above|earlier|system)|(do not|don't|never)\s+(tell|inform|mention|show|reveal|ask|alert)\b.{0,40}\b(user|human|reviewer|anyone|developer|permission)|without\s+(asking|telling|informing)\b|<!--.*\b(run|execute|curl|must|agent|assistant)\b|exfiltrat`)

// alsoRuns are keys of editors' settings that start programs or lift a restraint.
var alsoRuns = pattern.New(`(?i)(folderopen|allowautomatictasks|automationprofile|terminal\.integrated|\.(executable)?path"?$|command|executable|interpreter|shell|\benv\b|args|prelaunch|postdebug|script|autoapprove|workspace\.?trust|mcp|tasks|formatters|server|\.exe|program|runonsave|php\.validate|git\.|nodepath|gopath|toolsenv|linters|python\.|before_?run|option name="|extension)`)

// checkEditor reports settings of editors: all of files whose use is to run something, and of settings those that start programs.
func checkEditor(c *change, s *sink) {
	base := c.base()
	switch {
	case c.deleted():
		return
	case base == "extensions.json":
		reportLeaves(c, s, c.rule.kind, func(l leaf) bool { return l.has("recommendations") })
		mild(s, c.rule.kind)
	case base == "tasks.json" || base == "launch.json":
		reportLeaves(c, s, c.rule.kind, func(l leaf) bool { return l.key() != "version" && l.key() != "label" && l.key() != "name" })
		if !strings.Contains(strings.ToLower(c.new), "folderopen") {
			mild(s, c.rule.kind)
		}
	case c.ext() == ".json" || c.ext() == ".code-workspace":
		reportLeaves(c, s, c.rule.kind, func(l leaf) bool {
			return alsoRuns.MatchString(strings.Join(l.path, ".")) || strings.Contains(strings.ToLower(l.value), "folderopen")
		})
	case c.ext() == ".xml" || c.ext() == ".iml":
		reportLines(c, s, c.rule.kind, false, alsoRuns)
	default:
		// Vim, Emacs and others evaluate these when a file of the folder is opened.
		reportLines(c, s, c.rule.kind, c.ext() != ".md", nil)
	}
}

// mild takes the gravity of an editor's finding away that has no odd command: what it starts is asked for.
func mild(s *sink, kind string) {
	if g := s.groups[[2]string{kind, s.c.path}]; g != nil && strings.HasPrefix(g.Text, "new") {
		g.Grave = false
	}
}

// byWeight puts in front what a reader of one line should see: that it starts by itself, then what is started.
func byWeight(a, b leaf) int {
	weight := func(l leaf) int {
		switch {
		case strings.Contains(strings.ToLower(l.value), "folderopen"):
			return 0
		case commandKeys[strings.ToLower(l.key())] || l.key() == "entry" || l.key() == "url":
			return 1
		}
		return 2
	}
	return weight(a) - weight(b)
}

// reportLeaves reports new values of a JSON file that want picks. A file that is not JSON is compared by lines.
func reportLeaves(c *change, s *sink, kind string, want func(leaf) bool) {
	added, removed, err := newLeaves(c, walkJSON)
	if err != nil {
		s.add(kind, 0, true, "not valid JSON any more; programs differ in what they make of it")
		reportLines(c, s, kind, c.rule.unasked, nil)
		return
	}
	n := 0
	slices.SortStableFunc(added, byWeight)
	for _, l := range added {
		if why := suspicious(l.value); why != "" {
			s.add(kind, l.line, true, "%s: %s", why, quote(l.where()+": "+l.value))
			n++
		} else if want(l) {
			s.add(kind, l.line, true, "new: %s", quote(l.where()+": "+l.value))
			n++
		}
	}
	for _, l := range removed {
		if n == 0 && (want(l) || l.has("deny")) {
			s.add(kind, 0, l.has("deny"), "removed: %s", quote(l.where()+": "+l.value))
		}
	}
}
