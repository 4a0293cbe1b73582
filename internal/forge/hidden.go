package forge

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Readers of Markdown do not see comments, definitions of links, unused footnotes, attributes, unknown tags and titles
// of links. The rules remove too much rather than too little.

const (
	// maxPasses bounds the passes over a text: removing one part can join its neighbours to another.
	maxPasses = 6
	// maxTag bounds the length of a parsed tag, in bytes; a longer one is removed.
	maxTag = 4096
)

// before is the prefix of a block: quotes and lists.
const before = `[ \t>]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+[ \t>]*)*`

const (
	linkDest  = `(<[^<>\n]*>|[^\s<]\S*)`
	linkTitle = `(?:"(?:[^"\\\n]|\\.|\n[ \t>]*(?:[^\s"\\]|\\.))*(?:\n[ \t>]*)?"|'(?:[^'\\\n]|\\.|\n[ \t>]*(?:[^\s'\\]|\\.))*(?:\n[ ` +
		`\t>]*)?'|\((?:[^()\\\n]|\\.|\n[ \t>]*(?:[^\s()\\]|\\.))*(?:\n[ \t>]*)?\))`
)

var (
	definition = lazyregexp.New(`(?m)^(` + before + `)\[((?:[^\[\]\\]|\\.)+)\]:[ \t]*(?:\n[ \t>]*)?` + linkDest +
		`(?:(?:[ \t]+|[ \t]*\n[ \t>]*)` + linkTitle + `)?[ \t]*$`)
	label    = lazyregexp.New(`\[((?:[^\[\]\\]|\\.)+)\]`)
	footnote = lazyregexp.New(`^` + before + `\[\^([^\]\s]+)\]:`)
	footRef  = lazyregexp.New(`\[\^([^\]\s]+)\]`)
	target   = lazyregexp.New(`\]\([^)\n]*\)?`)

	// rawText is HTML that no blank line ends; browsers do not show the content of unshown.
	rawText = lazyregexp.New(`(?i)<(?:pre|script|style|textarea)\b`)
	rawEnd  = lazyregexp.New(`(?i)</(?:pre|script|style|textarea)\b`)
	unshown = lazyregexp.New(`(?is)<(?:rp|video|audio|template)(?:[\s/][^>]*)?>.*?(?:</(?:rp|video|audio|template)\s*>|\n[ \t>]*\n|$)`)

	htmlLine = lazyregexp.New(`(?m)^` + before + `</?[A-Za-z]`)
	// tag is Markdown's syntax of a tag in a paragraph, looseTag the browsers' in a block of HTML.
	tag = lazyregexp.New("^</?[A-Za-z][A-Za-z0-9-]*(?:\\s+[A-Za-z_:][A-Za-z0-9_.:-]*" +
		"(?:\\s*=\\s*(?:\"[^\"]*\"|'[^']*'|[^\\s\"'=<>`]+))?)*\\s*/?>")
	looseTag  = lazyregexp.New(`^</?[A-Za-z](?:[^>"']|"[^"]*"|'[^']*')*>`)
	tagStart  = lazyregexp.New(`^</?[A-Za-z]`)
	tagName   = lazyregexp.New(`^(</?)([A-Za-z][A-Za-z0-9]*)[\s/>]`)
	attribute = lazyregexp.New(`[\s"'](href|src|alt)\s*=\s*("[^"<>]*"|'[^'<>]*')`)
	titled    = lazyregexp.New(`^[ \t]*(?:\n[ \t>]*)?` + linkTitle + `\s*\)`)

	angled = lazyregexp.New(`^\]\(<[^<>\s]*>\)`)

	// elements are the elements that GitHub shows.
	elements = lazyregexp.New(`^(?i:a|abbr|b|blockquote|br|caption|cite|code|dd|del|details|dfn|div|dl|dt|em|figcaption|figure|h[1-8]|hr|` +
		`i|img|ins|kbd|li|mark|ol|p|picture|pre|q|rt|ruby|s|samp|small|source|span|strike|strong|` +
		`sub|summary|sup|table|tbody|td|tfoot|th|thead|tr|tt|u|ul|var|wbr)$`)
)

// withoutHidden removes hidden parts until a pass finds none.
func withoutHidden(text string) string {
	for range maxPasses {
		next := hiddenOnce(text)
		if next == text {
			return text
		}
		text = next
	}
	// Built to outlast maxPasses: show it, and let it begin nothing.
	return strings.NewReplacer("<", "< ", "](", "] (", "]:", "] :").Replace(text)
}

func hiddenOnce(text string) string {
	text = outsideFences(text, withoutMarkup)
	var all strings.Builder
	outsideFences(text, func(part string) (string, bool) { all.WriteString(part + "\n\n"); return part, true })
	links, notes := linkLabels(all.String()), footLabels(all.String())
	raw := rawText.MatchString(all.String())
	return outsideFences(text, func(part string) (string, bool) {
		part = unshown.ReplaceAllString(part, "…\n\n")
		part = withoutFootnotes(part, notes)
		part = definition.ReplaceAllStringFunc(part, func(s string) string { return define(s, links) })
		return paragraphs(part, func(p string) string { return withoutTags(p, raw) }), true
	})
}

func normal(s string) string { return strings.ToLower(texts.Words(s)) }

// linkLabels returns the labels in brackets outside of definitions. The first definition of a label counts.
func linkLabels(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range label.FindAllStringSubmatch(definition.ReplaceAllString(text, "\n"), -1) {
		out[normal(m[1])] = true
	}
	return out
}

// define keeps the label and the address of a definition that a link uses.
func define(s string, links map[string]bool) string {
	m := definition.FindStringSubmatch(s)
	if m == nil || strings.HasPrefix(m[2], "^") {
		return s
	}
	if name := normal(m[2]); links[name] && !strings.ContainsAny(m[3], " \t") {
		delete(links, name)
		return m[1] + "[" + m[2] + "]: " + m[3]
	}
	return ""
}

// footLabels returns the footnotes that a text certainly refers to.
func footLabels(text string) map[string]bool {
	out := map[string]bool{}
	if rawText.MatchString(text) {
		return out
	}
	paragraphs(text, func(p string) string {
		if strings.ContainsAny(p, "`<$\\") {
			return p
		}
		for line := range strings.Lines(target.ReplaceAllString(p, "]")) {
			if footnote.MatchString(line) {
				break // its words may be unseen too
			}
			if strings.HasPrefix(line, "    ") || strings.ContainsRune(line, '\t') {
				continue
			}
			for word := range strings.FieldsSeq(line) {
				if strings.ContainsAny(word, ":/(") {
					continue
				}
				for _, m := range footRef.FindAllStringSubmatch(word, -1) {
					out[normal(m[1])] = true
				}
			}
		}
		return p
	})
	return out
}

// withoutFootnotes drops unused footnotes with their indented paragraphs.
func withoutFootnotes(text string, notes map[string]bool) string {
	if !strings.Contains(text, "[^") {
		return text
	}
	var b strings.Builder
	drop, blank := false, false
	for line := range strings.SplitAfterSeq(text, "\n") {
		empty := strings.Trim(line, " \t>\n") == ""
		if m := footnote.FindStringSubmatch(line); m != nil {
			name := normal(m[1])
			drop = !notes[name]
			delete(notes, name) // a second one is not shown
			if drop {
				b.WriteString("…\n\n")
			}
		} else if drop && blank && !empty && !strings.HasPrefix(strings.TrimLeft(line, ">"), "  ") && !strings.HasPrefix(line, "\t") {
			drop = false
		}
		blank = empty
		if !drop {
			b.WriteString(line)
		}
	}
	return b.String()
}

// paragraphs applies f to the text between empty lines.
func paragraphs(text string, f func(string) string) string {
	var out, part strings.Builder
	flush := func() {
		if part.Len() > 0 {
			out.WriteString(f(part.String()))
			part.Reset()
		}
	}
	for line := range strings.SplitAfterSeq(text, "\n") {
		if strings.Trim(line, " \t>\n") == "" {
			flush()
			out.WriteString(line)
			continue
		}
		part.WriteString(line)
	}
	flush()
	return out.String()
}

// withoutTags removes the hidden parts of a paragraph's tags, and the titles of links. Certain code within one line stays.
func withoutTags(p string, raw bool) string {
	if !strings.ContainsAny(p, "<]") {
		return p
	}
	html := raw || htmlLine.MatchString(p)
	if !html {
		if out, sure := scan(p, true, false); sure {
			return out
		}
	}
	out, _ := scan(p, false, html)
	return out
}

// scan is false if it is uncertain what is code.
func scan(p string, code, html bool) (string, bool) {
	var b strings.Builder
	titles := titleFinder{none: -1}
	for i := 0; i < len(p); {
		n, put := 1, p[i:i+1]
		switch {
		case code && p[i] == '\\' && i+1 < len(p):
			n, put = 2, p[i:i+2]
		case code && p[i] == '`':
			if n = codeSpan(p[i:]); n == 0 {
				return "", false
			}
			put = p[i : i+n]
		case p[i] == '<' && tagStart.MatchString(p[i:min(i+3, len(p))]):
			if end := tagEnd(p[i:], html); end > 0 {
				n, put = end, shownTag(p[i:i+end])
			}
		case p[i] == ']' && strings.HasPrefix(p[i:], "]("):
			if m := angled.FindString(p[i:min(i+maxTag, len(p))]); m != "" && !html {
				n, put = len(m), m
				break
			}
			if from, to := titles.at(p, i+2); to > 0 {
				n, put = to-i, p[i:from]+")"
			}
		}
		b.WriteString(put)
		i += n
	}
	return b.String(), true
}

// titleFinder finds titles behind addresses. It remembers the next blank, so that many beginnings do not cost their square.
type titleFinder struct{ blank, none int }

// at returns where the address that begins at i ends, and where the link does; 0 without a title.
func (f *titleFinder) at(p string, i int) (from, to int) {
	if i < len(p) && p[i] == '<' {
		end := strings.IndexAny(p[i+1:min(i+maxTag, len(p))], "<>\n")
		if end < 0 || p[i+1+end] != '>' {
			return 0, 0
		}
		from = i + end + 2
	} else {
		if f.blank < i {
			n := strings.IndexAny(p[i:], " \t\n")
			if n < 0 {
				n = len(p) - i
			}
			f.blank = i + n
		}
		from = f.blank
	}
	if from == f.none || from >= len(p) {
		return 0, 0
	}
	m := titled.FindString(p[from:min(from+maxTag, len(p))])
	if m == "" || !strings.ContainsAny(m[:1], " \t\n") {
		f.none = from
		return 0, 0
	}
	return from, from + len(m)
}

// codeSpan returns the length of the code span at the beginning of s, 0 if it does not end on the line or in the table cell.
func codeSpan(s string) int {
	if n := strings.IndexByte(s, '\n'); n >= 0 {
		s = s[:n]
	}
	run := len(s) - len(strings.TrimLeft(s, "`"))
	for i := run; i < len(s); {
		switch {
		case s[i] == '|':
			return 0
		case s[i] != '`':
			i++
		default:
			n := len(s[i:]) - len(strings.TrimLeft(s[i:], "`"))
			if i += n; n == run {
				return i
			}
		}
	}
	return 0
}

// tagEnd returns the length of the tag at the beginning of s, 0 without one.
func tagEnd(s string, html bool) int {
	rule := tag
	if html {
		rule = looseTag
	}
	if m := rule.FindString(s[:min(maxTag, len(s))]); m != "" {
		return len(m)
	}
	if !html && len(s) <= maxTag {
		return 0
	}
	if n := strings.IndexByte(s, '>'); n >= 0 {
		return n + 1
	}
	if html {
		return len(s) // it hides all that follows
	}
	return 0
}

// shownTag returns a tag with only addresses and alternative texts; a sign for a tag that is not shown.
func shownTag(s string) string {
	m := tagName.FindStringSubmatch(s)
	if m == nil || !elements.MatchString(m[2]) || len(s) > maxTag || !strings.HasSuffix(s, ">") {
		return "…"
	}
	var out strings.Builder
	out.WriteString(m[1] + m[2])
	for _, a := range attribute.FindAllStringSubmatch(s, -1) {
		if a[1] == "alt" || !strings.ContainsAny(a[2], " \t\n") {
			out.WriteString(" " + a[1] + "=" + a[2])
		}
	}
	if strings.HasSuffix(s, "/>") {
		out.WriteByte('/')
	}
	out.WriteByte('>')
	return out.String()
}
