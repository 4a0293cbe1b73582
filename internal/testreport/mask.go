package testreport

import (
	"strings"
)

// source is a text taken apart as far as the rules need it.
type source struct {
	lang *language
	raw  []string // its lines
	code []string // the same without comments and without what strings say; columns are kept
	// full is code with strings left in: what is compared and shown.
	full []string
}

// maxLines bounds the lines of a source that are looked at.
const maxLines = 50_000

// maxTestLines bounds one test; a bracket that is never closed ends there.
const maxTestLines = 3000

// read takes a text apart.
func read(l *language, text string) *source {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	code, full := []byte(text), []byte(text)
	m := masker{lang: l, text: text, code: code, full: full}
	m.run()
	s := &source{lang: l, raw: strings.Split(text, "\n"), code: strings.Split(string(code), "\n"), full: strings.Split(string(full), "\n")}
	if len(s.raw) > maxLines {
		s.raw, s.code, s.full = s.raw[:maxLines], s.code[:maxLines], s.full[:maxLines]
	}
	return s
}

// masker replaces bytes by blanks, never newlines.
type masker struct {
	lang       *language
	text       string
	code, full []byte
	last       byte // the last byte of code that is no blank
}

func blank(b []byte, from, to int) {
	for i := from; i < min(to, len(b)); i++ {
		if b[i] != '\n' {
			b[i] = ' '
		}
	}
}

func (m *masker) run() {
	for i := 0; i < len(m.text); {
		n := m.comment(i)
		if n == 0 {
			n = m.literal(i)
		}
		if n == 0 {
			if c := m.text[i]; c > ' ' {
				m.last = c
			}
			n = 1
		}
		i += n
	}
}

// comment blanks one that begins at i and returns its length.
func (m *masker) comment(i int) int {
	rest := m.text[i:]
	for _, c := range m.lang.line {
		// #[ is an attribute of PHP and Rust, # in a word is none of a comment's.
		if strings.HasPrefix(rest, c) && (c != "#" || m.lang != php || !strings.HasPrefix(rest, "#[")) {
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest)
			}
			blank(m.code, i, i+n)
			blank(m.full, i, i+n)
			return n
		}
	}
	for _, b := range m.lang.block {
		if strings.HasPrefix(rest, b[0]) {
			n := strings.Index(rest[len(b[0]):], b[1])
			if n < 0 {
				n = len(rest)
			} else {
				n += len(b[0]) + len(b[1])
			}
			blank(m.code, i, i+n)
			blank(m.full, i, i+n)
			return n
		}
	}
	return 0
}

// literal blanks what the string that begins at i says and returns its length.
func (m *masker) literal(i int) int {
	rest := m.text[i:]
	for _, r := range m.lang.raw {
		if strings.HasPrefix(rest, r[0]) {
			n := strings.Index(rest[len(r[0]):], r[1])
			if n < 0 {
				n = len(rest)
			} else {
				n += len(r[0]) + len(r[1])
			}
			blank(m.code, i+len(r[0]), i+n-len(r[1]))
			m.last = '"'
			return n
		}
	}
	c := rest[0]
	regex := c == '/' && m.lang.regexes && strings.IndexByte("(,=:[!&|?{};\n\x00", m.last) >= 0
	if strings.IndexByte(m.lang.quotes, c) < 0 && !regex {
		return 0
	}
	for n := 1; n < len(rest) && rest[n] != '\n'; n++ {
		switch rest[n] {
		case '\\':
			n++
		case c:
			blank(m.code, i+1, i+n)
			m.last = '"'
			return n + 1
		}
	}
	return 1 // not closed on its line: no string after all
}

// indent is the width of a line's leading blanks; -1 for an empty line.
func indent(line string) int {
	body := strings.TrimLeft(line, " \t")
	if body == "" || body == "\r" {
		return -1
	}
	w := 0
	for _, c := range line[:len(line)-len(body)] {
		if c == '\t' {
			w += 4
		} else {
			w++
		}
	}
	return w
}

// closing is the last line of the block whose first bracket of the given kind
// is on line from or one of the next few; from itself when there is none.
func (s *source) closing(from int, open, end byte) int {
	const near = 8 // a signature over more lines than that is not followed
	depth, begun := 0, false
	for i := from; i < min(len(s.code), from+maxTestLines); i++ {
		for _, c := range []byte(s.code[i]) {
			switch c {
			case open:
				depth++
				begun = true
			case end:
				depth--
			case ';':
				if !begun && open == '{' { // a declaration without a body
					return i
				}
			}
			if begun && depth <= 0 {
				return i
			}
		}
		if !begun && i-from >= near {
			return from
		}
	}
	if begun {
		return min(len(s.code), from+maxTestLines) - 1
	}
	return from
}

var rubyMiddle = re(`^\s*(?:rescue|ensure|else|elsif|when)\b`)

// dedent is the last line of the block that line from opens by indentation.
func (s *source) dedent(from int) int {
	base, last := indent(s.code[from]), from
	// A signature that goes over lines ends with its bracket.
	start := from
	if strings.Count(s.code[from], "(") > strings.Count(s.code[from], ")") {
		start = s.closing(from, '(', ')')
		last = start
	}
	for i := start + 1; i < min(len(s.code), from+maxTestLines); i++ {
		w := indent(s.code[i])
		if w < 0 {
			continue
		}
		if w <= base {
			if s.lang == ruby && w == base && strings.HasPrefix(strings.TrimSpace(s.code[i]), "end") {
				return i
			}
			if s.lang == ruby && w == base && rubyMiddle.MatchString(s.code[i]) {
				continue
			}
			// A string or comment over lines leaves less indentation than it has.
			if strings.TrimSpace(s.full[i]) == "" {
				continue
			}
			break
		}
		last = i
	}
	return last
}
