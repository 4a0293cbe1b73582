package report

import (
	"fmt"
	"html"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// The escapes are character references: unlike backslashes they work in paragraphs, tables, headings and HTML. They are
// hexadecimal because the raw body can become a commit message, where "&#35;" would refer to issue 35.
//
// gap is a zero-width space. GitHub finds mentions and references after rendering; a gap splits them.
const gap = "&#x200b;"

var (
	// address is the beginning of a URL that becomes a link by itself.
	address = lazyregexp.New(`(?i)://|\bwww\.`)
	// shortcode is, after a colon, an emoji by its name, which could be a green tick.
	shortcode = lazyregexp.New(`^[0-9A-Za-z_+-]+(:|$)`)
	// gh is a reference such as GH-12.
	gh = lazyregexp.New(`(?i)\b(gh)-([0-9])`)
	// hexRun is what GitHub takes for a commit id, of at least seven digits.
	hexRun  = lazyregexp.New(`(?i)\b[0-9a-f]{7,}\b`)
	hexPart = lazyregexp.New(`(?i)[0-9a-f]{6}`)
	// box begins an alert, a task's box or a footnote.
	box = lazyregexp.New(`\[([!^ xX]|$)`)
	// listMark begins a list, a heading or a rule.
	listMark = lazyregexp.New(`^([-+=:]|[0-9]{1,9}[.)](\s|$))`)
	// acts is what GitHub acts on in a commit message.
	acts = lazyregexp.New("(?i)[@`|]|#[0-9]|\\bgh-[0-9]")
)

// mark is replaced by a gap; clean has dropped it from the text itself.
const mark = "\u200b"

// esc escapes a clean text of one line for any place in Markdown.
func esc(s string) string {
	s = address.ReplaceAllStringFunc(s, func(m string) string {
		if m[0] == ':' {
			return ":" + mark + "//"
		}
		return m[:3] + mark + m[3:]
	})
	s = partNames(s)
	s = gh.ReplaceAllString(s, "$1"+mark+"-$2")
	s = box.ReplaceAllString(s, "["+mark+"$1")
	s = hexRun.ReplaceAllStringFunc(s, func(m string) string { return hexPart.ReplaceAllString(m, "$0"+mark) })
	var b strings.Builder
	if n := len(s) - len(strings.TrimLeft(s, " ")); n > 0 {
		b.WriteString(strings.Repeat("&nbsp;", n)) // else four of them are code
		s = s[n:]
	}
	if m := strings.TrimRight(listMark.FindString(s), " "); m != "" {
		last := len(m) - 1
		fmt.Fprintf(&b, "%s&#x%x;", m[:last], m[last])
		s = s[len(m):]
	}
	for i, r := range s {
		switch r {
		case '_':
			if i > 0 && alnum(s[i-1]) && i+1 < len(s) && alnum(s[i+1]) {
				b.WriteRune(r) // within a word it is none of Markdown's, and many names have it
				continue
			}
			b.WriteString("&#x5f;")
		case '@', '#':
			fmt.Fprintf(&b, "&#x%x;%s", r, gap)
		case '$':
			b.WriteString("<span>&#x24;</span>") // what GitHub's documentation says against formulas
		case '\\', '`', '*', '[', ']', '|', '~':
			fmt.Fprintf(&b, "&#x%x;", r)
		case '\u200b':
			b.WriteString(gap)
		case '\n':
			b.WriteByte(' ')
		case '<', '>', '&':
			b.WriteString(html.EscapeString(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// partNames marks each emoji name; the end of one can be the beginning of the next.
func partNames(s string) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, ":")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		b.WriteByte(':')
		if shortcode.MatchString(after) {
			b.WriteString(mark)
		}
		s = after
	}
}

func alnum(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// code formats a clean text of one line as code, where GitHub acts on nothing; what a commit message would act on
// becomes references.
func code(s string) string {
	switch {
	case s == "":
		return ""
	case acts.MatchString(s), strings.Contains(s, "<!--"), // it could be taken for one of our hidden lines
		strings.HasPrefix(s, " "), strings.HasSuffix(s, " "), strings.Contains(s, "\n"):
		return "<code>" + escCode(s) + "</code>"
	}
	return "`" + s + "`"
}

// escCode is esc for the inside of a code element, which readers copy: a gap only splits e-mail addresses.
func escCode(s string) string {
	s = address.ReplaceAllStringFunc(s, func(m string) string {
		if m[0] == ':' {
			return ":" + mark + "//"
		}
		return m[:3] + mark + m[3:]
	})
	var b strings.Builder
	word := false
	for _, r := range s {
		switch r {
		case '@':
			b.WriteString("&#x40;")
			if word {
				b.WriteString(gap)
			}
		case '\u200b':
			b.WriteString(gap)
		case '\n':
			b.WriteByte(' ')
		case '#', '\\', '`', '*', '_', '[', ']', '|', '~', '$', ':', '-', '"', '\'':
			fmt.Fprintf(&b, "&#x%x;", r)
		default:
			b.WriteString(html.EscapeString(string(r)))
		}
		word = r > ' '
	}
	return b.String()
}

// pre formats preformatted text as HTML, which a text without "<" cannot end.
func pre(s string) string {
	s = gh.ReplaceAllString(s, "$1"+mark+"-$2")
	var b strings.Builder
	b.WriteString("<pre>")
	for _, r := range s {
		switch r {
		case '@', '#':
			fmt.Fprintf(&b, "&#x%x;", r)
		case '<', '>', '&':
			b.WriteString(html.EscapeString(string(r)))
		case '\u200b':
			b.WriteString(gap)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + "</pre>\n"
}

// quote formats a clean text as a block quote.
func quote(s string) string {
	var b strings.Builder
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		switch {
		case l == "":
			b.WriteString(">\n")
		case i+1 < len(lines) && lines[i+1] != "":
			b.WriteString("> " + esc(l) + "\\\n") // a hard break, whether or not line feeds are ones
		default:
			b.WriteString("> " + esc(l) + "\n")
		}
	}
	return b.String()
}

// link formats Markdown text as a link, or unchanged without a valid address.
func link(text, to string) string {
	if to = webAddress(to); to == "" {
		return text
	}
	return `<a href="` + html.EscapeString(to) + `">` + text + `</a>`
}

// maxURL bounds an address: browsers and forges cut longer ones.
const maxURL = 2000

// webAddress returns an absolute web address in its encoded form, or "".
func webAddress(s string) string {
	if s == "" || len(s) > maxURL || !utf8.ValidString(s) || strings.ContainsFunc(s, text.IsInvisible) {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Opaque != "" {
		return ""
	}
	out := strings.ReplaceAll(u.String(), "@", "%40") // no mention in a commit's message either
	if strings.ContainsAny(out, "\"'<>`\\ {}|^\n") {
		return ""
	}
	return out
}
