package forge

import (
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// Our texts end in a hidden line: <!-- sandbox-agent:KEY -->.
const (
	markStart = "<!-- sandbox-agent:"
	markEnd   = " -->"
)

var keyRule = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_./:-]{0,99}$`)

// Mark returns the hidden line that marks a text as ours.
func Mark(key string) string { return markStart + key + markEnd }

// MarkOf returns the key in the last line of a text, "" without one. A reply that quotes us has its own words below.
func MarkOf(body string) string {
	body = strings.TrimRight(body, " \t\r\n")
	line := body[strings.LastIndexByte(body, '\n')+1:]
	key, ok := strings.CutPrefix(line, markStart)
	if !ok {
		return ""
	}
	key, ok = strings.CutSuffix(key, markEnd)
	if !ok || !keyRule.MatchString(key) {
		return ""
	}
	return key
}

// Marked appends the mark to a text, which is cut if necessary.
func Marked(key, body string) (string, error) {
	if !keyRule.MatchString(key) || strings.Contains(key, "--") {
		return "", fmt.Errorf("key %q of a comment has other characters than letters, digits and _./:-", key)
	}
	mark := "\n\n" + Mark(key)
	body, _ = FitBody(strings.TrimRight(body, "\n"), MaxBody-len(mark))
	return body + mark, nil
}

// Posted is an existing comment.
type Posted struct {
	ID      int64
	URL     string
	Created bool // by this call; else it was there, and updated if its text was another
}

// SameText reports whether two texts differ only in their line ends.
func SameText(a, b string) bool {
	return strings.ReplaceAll(a, "\r\n", "\n") == strings.ReplaceAll(b, "\r\n", "\n")
}
