package forge

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Strip takes out of Markdown what a reader on the forge does not see and an agent
// would read: HTML comments, processing instructions, declarations and CDATA, definitions of
// links but for the address of a link that is there, footnotes that nothing refers to, tags that GitHub drops, the attributes
// of others, titles of links and images (seen by who points at them only), invisible and bidirectional characters, the
// tags block, variation selectors that select nothing, control characters. Alt texts
// of images, addresses of links and folded details stay: a reader can get at them, and they say what is linked.
// removed is the number of characters taken out.
//
// HTML comments go even where they are shown, in code: what is code is decided by
// rules that can be played against any simpler reader of them. Processing instructions and the like
// stay in fenced code, where they are usually a program.
func Strip(text string) (clean string, removed int) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	before := utf8.RuneCountInString(text)
	text = withoutHidden(withoutComments(visible(text)))
	return text, max(before-utf8.RuneCountInString(text), 0)
}

// StripPlain is Strip for what is read as it is written, such as a title or a file in an editor: what looks like a tag in it is seen.
func StripPlain(text string) string { return withoutComments(visible(text)) }

// visible drops characters that are not seen. A lone variation selector stays after a
// character that it can belong to. Joiners go, since they can carry text: that parts a few
// emoji and is harmless.
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

// pictograph tells whether a character has a text and an emoji form.
func pictograph(r rune) bool {
	return r >= 0x2000 && r <= 0x33ff || r >= 0x1f000 && r <= 0x1faff || r == '#' || r == '*' || r >= '0' && r <= '9' || r == 0xa9 || r == 0xae
}

// withoutComments drops HTML comments. Each leaves a space, so that what was around
// it cannot join to a new one.
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

// commentEnd is where a comment ends whose beginning was before rest, -1 if nowhere.
// `<!-->` and `<!--->` are whole comments, and `--!>` ends one, in HTML.
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

// hidesRest tells whether a comment without an end, after this beginning of a line, is a block: a
// browser hides the rest of the text then, and shows the comment elsewhere.
func hidesRest(line string) bool { return strings.Trim(line, " \t>*+-0123456789.)") == "" }

var (
	// markup is what HTML parsers and GitHub's sanitizer drop with all that is in it.
	markup = lazyregexp.New(`(?s)<\?.*?\?>|<!\[CDATA\[.*?\]\]>|<![A-Za-z][^>]*>`)
	// unendedMarkup begins a block that nothing ends.
	unendedMarkup = lazyregexp.New(`(?s)(^|\n)([ \t>]*)(<\?|<!\[CDATA\[|<![A-Za-z]).*$`)
)

// withoutMarkup puts a sign in the place of each piece, so that what was around it cannot
// join to a new one or to a fence. ended is false where a piece without an end hides all that follows.
func withoutMarkup(text string) (clean string, ended bool) {
	text = markup.ReplaceAllString(text, "…")
	if i := unendedMarkup.FindStringIndex(text); i != nil {
		return unendedMarkup.ReplaceAllString(text, "$1$2"), false
	}
	return text, true
}

// outsideFences applies f to the text between fenced blocks of code, until f finds an end.
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
			// Within HTML no fence is one; a blank line ends most of HTML.
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

// fenceMark is the run of backticks or tildes that a line begins with, indented by three at most, and what is after it.
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
