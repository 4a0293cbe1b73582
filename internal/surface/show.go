package surface

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// visible makes a string of a repository harmless to print: everything that is not
// a printable character becomes its number, and it is cut at limit characters.
func visible(s string, limit int) string {
	var b strings.Builder
	n := 0
	for i := 0; i < len(s); {
		if n >= limit {
			b.WriteString("…")
			break
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\t':
			b.WriteByte(' ')
		case harmless(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%X}`, r)
		}
		i += size
		n++
	}
	return b.String()
}

// harmless: it shows itself, and nothing else. A hidden character that counts as printable is not harmless.
func harmless(r rune) bool {
	return unicode.IsPrint(r) && hiddenClass(r) == ""
}

// spaces are runs of white space, which would shorten a quotation to nothing.
var spaces = pattern.New(`\s{2,}`)

// secretValue finds values that a quotation must not repeat.
var secretValue = pattern.New(`(?i)((?:_auth|_authtoken|token|passw(?:or)?d|secret|api[-_]?key)["']?\s*[:=]\s*["']?)([^\s"'${]{6,})`)

// userInfo is the name and password of a URL.
var userInfo = pattern.New(`://[^/\s@"']+:[^/\s@"']+@`)

// quote is a line of a repository as a finding quotes it.
func quote(s string) string {
	if len(s) > 8*maxQuote { // what is dropped anyway is not looked at
		s = s[:8*maxQuote]
	}
	s = spaces.ReplaceAllString(strings.TrimSpace(s), " ")
	s = secretValue.ReplaceAllString(s, "${1}…")
	s = userInfo.ReplaceAllString(s, "://…@")
	return `"` + visible(s, maxQuote) + `"`
}

// bytesText is a size for a human.
func bytesText(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%d kB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// plural is "1 file" or "2 files".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
