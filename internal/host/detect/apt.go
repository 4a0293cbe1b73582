package detect

import (
	"regexp"
	"strings"
)

var (
	aptCommand = regexp.MustCompile(`^(?:sudo\s+)?(?:DEBIAN_FRONTEND=\S+\s+)?apt(?:-get)?\s+(?:-\S+\s+)*(?:update|install)((?:\s+-\S+|\s+[a-z0-9][a-z0-9+.-]*[a-z0-9+.])*)$`) // a hyphen at its end removes a package
	ands       = regexp.MustCompile(`\s*&&\s*`)
)

// apt takes lines that only install packages of the distribution out of a command: the sandbox installs packages before setup, as
// root, which setup is not. It returns the rest.
func (d *detector) apt(at Place, command string) string {
	var rest []string
	for line := range strings.Lines(command) {
		var packages []string
		all := true
		for _, part := range ands.Split(strings.TrimSpace(line), -1) {
			m := aptCommand.FindStringSubmatch(part)
			if m == nil {
				all = false
				break
			}
			for word := range strings.FieldsSeq(m[1]) {
				if !strings.HasPrefix(word, "-") {
					packages = append(packages, word)
				}
			}
		}
		if !all {
			rest = append(rest, strings.TrimRight(line, "\n"))
			continue
		}
		d.need(at, packages...)
	}
	return strings.Join(rest, "\n")
}
