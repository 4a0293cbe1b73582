package testreport

import "strings"

var (
	stopsAtErrors = re(`^set -[ux]*e`)
	// shellOptions are those that make a shell stricter; -n, for one, makes it run nothing.
	shellOptions = re(`^set -[eux]+(?: -?o? ?pipefail)?$`)
	// asksMore is a command that checks something, and has no way to end otherwise than by what it finds.
	asksMore  = re(`^@?(?:test |\[ |go (?:vet|test|build) |(?:npm|yarn|pnpm) (?:test|run)\b|python3? -m (?:pytest|unittest|mypy|ruff|flake8)\b|pytest\b|make |cargo (?:test|check|clippy|build)\b|ruff |mypy |eslint |shellcheck |golangci-lint |staticcheck |diff |cmp )`)
	wayAround = re(`\|\||;|\bexit\b|\|[^|]|>|&`)
)

// stricter reports whether commands ask for all that they did, in the same order, and for more: lines that are new each check
// something. A script has to stop at the first error as it begins, or else its last line decides.
func stricter(was, is string, script bool) bool {
	old, stops, more := commandLines(was), false, false
	if len(old) == 0 {
		return false
	}
	for _, l := range commandLines(is) {
		switch {
		case len(old) > 0 && (l == old[0] || shellOptions.MatchString(l) && shellOptions.MatchString(old[0]) && (stopsAtErrors.MatchString(l) || !stopsAtErrors.MatchString(old[0]))):
			more = more || l != old[0]
			old = old[1:]
		case shellOptions.MatchString(l), asksMore.MatchString(l) && !wayAround.MatchString(l):
			more = true
		default:
			return false
		}
		if stops = stops || stopsAtErrors.MatchString(l); script && !stops && !strings.HasPrefix(l, interpreterLine) {
			return false
		}
	}
	return more && len(old) == 0
}

const interpreterLine = "#!"

// commandLines are the lines of a script or recipe that say something.
func commandLines(text string) (out []string) {
	for l := range strings.Lines(text) {
		if l = squeeze(l); l != "" && (!strings.HasPrefix(l, "#") || strings.HasPrefix(l, interpreterLine)) {
			out = append(out, l)
		}
	}
	return out
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
