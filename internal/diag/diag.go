// Package diag holds positioned problems of input files and prints them the way
// a compiler does: place, code, message, the line with a caret, a hint. It knows
// nothing of what the files mean.
package diag

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Problem is one mistake at one place. Line and Col count from 1, in
// characters; 0 means the file as a whole (or a value that is in no file).
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Col     int    `json:"col,omitempty"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Source is the text of the line as it may be shown: the maker of the problem
	// has masked what is secret. Empty means no excerpt.
	Source string `json:"source,omitempty"`
}

// Pos is file:line:col, as far as it is known.
func (p Problem) Pos() string {
	switch {
	case p.Line <= 0:
		return p.File
	case p.Col <= 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// String is the problem on one line, without excerpt and hint.
func (p Problem) String() string {
	return fmt.Sprintf("%s: error[%s]: %s", Printable(p.Pos()), p.Code, Printable(p.Message))
}

// List is problems in any order.
type List []Problem

// Sorted returns the problems by place, each once.
func (l List) Sorted() List {
	s := slices.Clone(l)
	slices.SortStableFunc(s, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	return slices.CompactFunc(s, func(a, b Problem) bool {
		a.Hint, b.Hint, a.Source, b.Source = "", "", "", ""
		return a == b
	})
}

// Style says how a list is printed.
type Style struct {
	Color bool
	// Width cuts excerpts to this many columns around the caret; 0 is 120.
	Width int
}

const (
	defaultWidth = 120
	bold         = "\x1b[1m"
	red          = "\x1b[31m"
	cyan         = "\x1b[36m"
	reset        = "\x1b[0m"
)

// Print writes the problems sorted, each once.
func (l List) Print(w io.Writer, s Style) error {
	paint := func(code, text string) string {
		if !s.Color || text == "" {
			return text
		}
		return code + text + reset
	}
	var b strings.Builder
	for _, p := range l.Sorted() {
		fmt.Fprintf(&b, "%s: %s %s\n", paint(bold, Printable(p.Pos())),
			paint(red, "error["+p.Code+"]:"), Printable(p.Message))
		if line, caret := excerpt(p, s.Width); line != "" {
			fmt.Fprintf(&b, "  | %s\n  | %s\n", line, paint(red, caret))
		}
		if p.Hint != "" {
			fmt.Fprintf(&b, "  %s %s\n", paint(cyan, "hint:"), Printable(p.Hint))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// excerpt returns the part of the source line around the column and the line
// with the caret below it.
func excerpt(p Problem, width int) (line, caret string) {
	if strings.TrimSpace(p.Source) == "" || p.Line <= 0 {
		return "", ""
	}
	if width <= 0 {
		width = defaultWidth
	}
	const margin = 4 // what Print puts before the line
	room := max(width-margin, 20)
	r := []rune(Printable(p.Source))
	col := min(max(p.Col, 1), len(r)+1) - 1
	from := 0
	if col >= room {
		from = min(col-room/2, max(len(r)-room, 0))
	}
	to := min(from+room, len(r))
	var pad strings.Builder
	for _, c := range r[from:min(col, to)] {
		// A wide character takes two columns, so does the padding below it.
		pad.WriteString(strings.Repeat(" ", 1+wide(c)))
	}
	return strings.TrimRight(string(r[from:to]), " "), pad.String() + "^"
}

// wide is 1 for the characters that terminals draw two columns wide.
func wide(r rune) int {
	if r >= 0x1100 && (unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) ||
		r >= 0xff01 && r <= 0xff60 || r >= 0x1f300 && r <= 0x1faff) {
		return 1
	}
	return 0
}

// Printable replaces what could act on a terminal, character for character, so
// that columns stay right: input files are not trusted.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case r == utf8.RuneError, text.IsControl(r):
			return '\ufffd'
		}
		return r
	}, s)
}
