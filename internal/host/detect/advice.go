package detect

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// adviceFiles are written for people and agents.
var adviceFiles = []string{"AGENTS.md", "CLAUDE.md", ".github/copilot-instructions.md", "CONTRIBUTING.md"}

var (
	heading = lazyregexp.New(`(?i)^#{1,6}\s+.*\b(tests?|testing|lint(ing)?|checks?|build(ing)?|verify)\b`)
	anyHead = lazyregexp.New(`^#{1,6}\s`)
	fence   = lazyregexp.New("^\\s*(```|~~~)")
)

// readAdvice suggests the commands below headings such as "Testing". The agent reads these files itself; no run takes their commands.
func readAdvice(d *detector) {
	for _, name := range adviceFiles {
		f := d.open(name)
		if f == nil {
			continue
		}
		under, fenced := false, false
		line := 0
		for l := range strings.Lines(f.text) {
			if line++; line > maxLines {
				d.omit(Position{name, line}, name, "only its first %d lines are read", maxLines)
				break
			}
			l = strings.TrimRight(l, "\n")
			switch {
			case fence.MatchString(l):
				fenced = !fenced
			case fenced:
				command := strings.TrimPrefix(strings.TrimSpace(l), "$ ")
				if v := d.classify(command, 0); under && v.kind.judges() && !v.narrow {
					d.suggest(Position{name, line}, string(v.kind), v.command)
				}
			case anyHead.MatchString(l):
				under = heading.MatchString(l)
			}
		}
	}
}
