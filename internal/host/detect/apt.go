package detect

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// A package with a hyphen at its end would be removed.
var aptCommand = lazyregexp.New(`^(?:sudo\s+)?(?:DEBIAN_FRONTEND=\S+\s+)?apt(?:-get)?\s+(?:-\S+\s+)*(?:update|install)` +
	`((?:\s+-\S+|\s+[a-z0-9][a-z0-9+.-]*[a-z0-9+.])*)$`)

// Apt takes lines that only install packages of the distribution out of a command: the sandbox installs packages before setup, as
// root, which setup is not.
func Apt(command string) (packages []string, rest string) {
	var kept []string
	for line := range strings.Lines(command) {
		names, all := aptLine(line)
		if !all {
			kept = append(kept, strings.TrimRight(line, "\n"))
		}
		packages = append(packages, names...)
	}
	return packages, strings.Join(kept, "\n")
}

// aptLine returns the packages that a line installs, or that it does something else, too.
func aptLine(line string) (packages []string, all bool) {
	for _, part := range ands.Split(strings.TrimSpace(line), -1) {
		m := aptCommand.FindStringSubmatch(part)
		if m == nil {
			return nil, false
		}
		for word := range strings.FieldsSeq(m[1]) {
			if !strings.HasPrefix(word, "-") {
				packages = append(packages, word)
			}
		}
	}
	return packages, true
}
