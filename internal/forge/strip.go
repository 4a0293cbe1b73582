package forge

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Strip removes from Markdown what a reader on the forge does not see and an agent would read: HTML comments,
// processing instructions, declarations and CDATA, unused definitions of links, unused footnotes, tags that GitHub
// drops, attributes, titles of links and images, and invisible characters. Alt texts, addresses of links and folded
// details stay. removed is the number of removed characters.
//
// HTML comments are removed even in code, because no simple parser decides reliably what is code. Processing
// instructions and the like stay in fenced code, where they are usually a program.
func Strip(text string) (clean string, removed int) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	before := utf8.RuneCountInString(text)
	text = withoutHidden(withoutComments(visible(text)))
	return text, max(before-utf8.RuneCountInString(text), 0)
}

// StripPlain is Strip for text that readers see as it is written, such as a title.
func StripPlain(text string) string { return withoutComments(visible(text)) }

// visible drops invisible characters. A variation selector stays after a character that it can belong to. Joiners can
// carry text and are dropped, which splits a few emoji.
func visible(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	var last rune
	for _, r := range text {
		switch {
		case r == utf8.RuneError:
			b.WriteRune(unicode.ReplacementChar)
		case texts.EndsLine(r):
			b.WriteByte('\n')
			r = '\n'
		case r == '\ufe0f' || r == '\ufe0e':
			if !pictograph(last) {
				continue
			}
			b.WriteRune(r)
		case r != '\n' && r != '\t' && texts.IsInvisible(r):
			continue
		default:
			b.WriteRune(r)
		}
		last = r
	}
	return b.String()
}

// pictograph reports whether a character has a text and an emoji form.
func pictograph(r rune) bool {
	return r >= 0x2000 && r <= 0x33ff || r >= 0x1f000 && r <= 0x1faff || r == '#' || r == '*' || r >= '0' && r <= '9' || r == 0xa9 || r == 0xae
}

// withoutComments replaces each HTML comment by a space, so that its neighbours do not join to a new one.
func withoutComments(text string) string {
	var b strings.Builder
	line := 0                   // where the last line in b begins
	more := [2]bool{true, true} // whether there are ends of each form ahead: without it, many beginnings cost their square
	for {
		i := strings.Index(text, "<!--")
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		if n := strings.LastIndexByte(text[:i], '\n'); n >= 0 {
			line = b.Len() + n + 1
		}
		b.WriteString(text[:i])
		rest := text[i+len("<!--"):]
		end := commentEnd(rest, &more)
		switch {
		case end >= 0:
			b.WriteByte(' ')
			text = rest[end:]
		case hidesRest(b.String()[line:]):
			return b.String()
		default:
			b.WriteString("< !--") // shown, and no longer the beginning of anything
			text = rest
		}
	}
}

// commentEnd returns where a comment ends that began before rest, -1 if nowhere. `<!-->` and `<!--->` are whole
// comments, and `--!>` ends one, in HTML.
func commentEnd(rest string, more *[2]bool) int {
	if strings.HasPrefix(rest, ">") {
		return 1
	}
	if strings.HasPrefix(rest, "->") {
		return 2
	}
	best := -1
	for k, mark := range [2]string{"-->", "--!>"} {
		if !more[k] {
			continue
		}
		e := strings.Index(rest, mark)
		if more[k] = e >= 0; more[k] && (best < 0 || e+len(mark) < best) {
			best = e + len(mark)
		}
	}
	return best
}

// hidesRest reports whether an unended comment after this beginning of a line is a block: then browsers hide the rest.
func hidesRest(line string) bool { return strings.Trim(line, " \t>*+-0123456789.)") == "" }

var (
	// markup is dropped, with its content, by HTML parsers and GitHub's sanitizer.
	markup = lazyregexp.New(`(?s)<\?.*?\?>|<!\[CDATA\[.*?\]\]>|<![A-Za-z][^>]*>`)
	// unendedMarkup begins a block without an end.
	unendedMarkup = lazyregexp.New(`(?s)(^|\n)([ \t>]*)(<\?|<!\[CDATA\[|<![A-Za-z]).*$`)
)

// withoutMarkup replaces each piece by a sign, so that its neighbours do not join. ended is false if a piece hides the rest.
func withoutMarkup(text string) (clean string, ended bool) {
	text = markup.ReplaceAllString(text, "…")
	if i := unendedMarkup.FindStringIndex(text); i != nil {
		return unendedMarkup.ReplaceAllString(text, "$1$2"), false
	}
	return text, true
}

// outsideFences applies f to the text outside of fenced code blocks, until f finds an end.
func outsideFences(text string, f func(string) (string, bool)) string {
	var out, part strings.Builder
	flush := func() bool {
		clean, goOn := f(part.String())
		part.Reset()
		out.WriteString(clean)
		return goOn
	}
	fence, html, raw := "", false, false
	for line := range strings.SplitAfterSeq(text, "\n") {
		mark, after := fenceMark(line)
		if fence == "" {
			// HTML has no fences; a blank line ends most of it.
			raw = (raw || rawText.MatchString(line)) && !rawEnd.MatchString(line)
			html = raw || (html || htmlLine.MatchString(line)) && strings.Trim(line, " \t>\n") != ""
		}
		switch {
		case fence != "":
			out.WriteString(line)
			if len(mark) >= len(fence) && mark[0] == fence[0] && strings.TrimSpace(after) == "" {
				fence = ""
			}
		case !html && len(mark) >= 3 && (mark[0] == '~' || !strings.Contains(after, "`")):
			if !flush() {
				return out.String()
			}
			fence = mark
			out.WriteString(line)
		default:
			part.WriteString(line)
		}
	}
	flush()
	return out.String()
}

// fenceMark returns the run of backticks or tildes at the beginning of a line, indented by at most three, and the rest.
func fenceMark(line string) (mark, after string) {
	bare := strings.TrimLeft(line, " ")
	if len(line)-len(bare) > 3 {
		return "", bare
	}
	for _, c := range []string{"`", "~"} {
		if after = strings.TrimLeft(bare, c); len(after) < len(bare) {
			return bare[:len(bare)-len(after)], after
		}
	}
	return "", bare
}
