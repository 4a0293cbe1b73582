package detect

import (
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
)

// adviceFiles are texts for people and agents.
var adviceFiles = append(slices.Clone(agentkind.InstructionFiles), "CONTRIBUTING.md")

var (
	heading = regexp.MustCompile(`(?i)^#{1,6}\s+.*\b(tests?|testing|lint(ing)?|checks?|build(ing)?|verify)\b`)
	anyHead = regexp.MustCompile(`^#{1,6}\s`)
	fence   = regexp.MustCompile("^\\s*(```|~~~)")
)

// advice takes commands below headings such as "Testing" as suggestions. The agent reads these files itself; no run takes a
// command of them unasked.
func (d *detector) advice() {
	for _, name := range adviceFiles {
		f := d.open(name)
		if f == nil {
			continue
		}
		under, fenced := false, false
		line := 0
		for l := range strings.Lines(f.text) {
			if line++; line > maxLines {
				d.omit(Position{name, line}, name, "what stands behind its first 2000 lines is not read")
				break
			}
			l = strings.TrimRight(l, "\n")
			switch {
			case fence.MatchString(l):
				fenced = !fenced
			case fenced:
				command := strings.TrimPrefix(strings.TrimSpace(l), "$ ")
				if kind := d.kind(command); under && kind != "" {
					d.suggest(Position{name, line}, kind, command)
				}
			case anyHead.MatchString(l):
				under = heading.MatchString(l)
			}
		}
	}
}

// suggest adds a check that the draft does not have, under any name.
func (d *collector) suggest(at Position, name, command string) {
	for _, c := range append(d.Validate, d.Suggested...) {
		if c.Command == command || c.Name == name {
			return
		}
	}
	if len(d.Suggested) < maxList {
		d.Suggested = append(d.Suggested, Check{name, command, at})
	}
}
