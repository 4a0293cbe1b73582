package testreport

import "strings"

var (
	stopsAtErrors = re(`(?m)^\s*set -\w*e`)
	shellOptions  = re(`^set -[a-z]+(?: -?o? ?pipefail)?$`)
	// asksMore is a command that checks something, and has no way to end otherwise than by what it finds.
	asksMore  = re(`^@?(?:test |\[ |go (?:vet|test|build) |(?:npm|yarn|pnpm) (?:test|run)\b|npx |python3? -m |pytest\b|make |cargo |ruff |mypy |eslint |shellcheck |golangci-lint |staticcheck |diff |cmp )`)
	wayAround = re(`\|\||;|\bexit\b|\|[^|]|>|&`)
)

// stricter reports whether commands ask for all that they did, and for more: lines that are new each check something. A
// script has to stop at the first error, or else its last line decides.
func stricter(was, is string, script bool) bool {
	if script && !stopsAtErrors.MatchString(is) {
		return false
	}
	removed, added := changedLines(was, is)
	for _, l := range removed {
		if !shellOptions.MatchString(l) {
			return false
		}
	}
	for _, l := range added {
		if !shellOptions.MatchString(l) && (!asksMore.MatchString(l) || wayAround.MatchString(l)) {
			return false
		}
	}
	return was != "" && len(added) > 0
}

// grown reports whether a list of base is among the new lines with more at its end.
func grown(list string, is *source, outside []int) bool {
	if !assigned.MatchString(list) {
		return false
	}
	start := strings.TrimRight(list, ")]}, ")
	for _, i := range outside {
		if strings.HasPrefix(squeeze(is.full[i]), start+",") || strings.HasPrefix(squeeze(is.full[i]), start+"),") || strings.HasPrefix(squeeze(is.full[i]), start+"],") {
			return true
		}
	}
	return false
}

var assigned = re(`^(?:(?:const|let|var) )?\w+ :?= ?[\[({]`)
