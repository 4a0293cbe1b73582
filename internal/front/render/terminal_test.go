package render_test

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// terminal is enough of one to see what a user would see. Anything it does not
// know that starts with ESC is kept as text, so that tests notice it.
type terminal struct {
	width    int
	rows     [][]rune
	row, col int
}

func newTerminal(width int) *terminal { return &terminal{width: width, rows: [][]rune{nil}} }

func (t *terminal) Write(b []byte) (int, error) {
	s := string(b)
	for len(s) > 0 {
		if strings.HasPrefix(s, "\x1b[") {
			end := strings.IndexFunc(s[2:], func(r rune) bool { return r >= 0x40 && r <= 0x7e })
			if end >= 0 && t.control(s[2:2+end], s[2+end]) {
				s = s[3+end:]
				continue
			}
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		switch r {
		case '\n':
			t.row, t.col = t.row+1, 0
			t.grow()
		case '\r':
			t.col = 0
		default:
			t.put(r)
		}
	}
	return len(b), nil
}

func (t *terminal) control(arg string, final byte) bool {
	switch {
	case final == 'm', arg == "?2026" && (final == 'h' || final == 'l'):
	case final == 'A':
		n, _ := strconv.Atoi(arg)
		t.row = max(0, t.row-max(1, n))
	case final == 'K' && arg == "":
		t.rows[t.row] = t.rows[t.row][:min(t.col, len(t.rows[t.row]))]
	case final == 'J' && arg == "":
		t.rows[t.row] = t.rows[t.row][:min(t.col, len(t.rows[t.row]))]
		t.rows = t.rows[:t.row+1]
	default:
		return false
	}
	return true
}

func (t *terminal) put(r rune) {
	if t.col >= t.width {
		t.row, t.col = t.row+1, 0
		t.grow()
	}
	line := t.rows[t.row]
	for len(line) <= t.col {
		line = append(line, ' ')
	}
	line[t.col] = r
	t.rows[t.row] = line
	t.col++
}

func (t *terminal) grow() {
	for len(t.rows) <= t.row {
		t.rows = append(t.rows, nil)
	}
}

// resize breaks long rows anew, as terminals do when they become narrower.
func (t *terminal) resize(width int) {
	var rows [][]rune
	for i, r := range t.rows {
		if i == t.row {
			t.row = len(rows)
		}
		for len(r) > width {
			rows = append(rows, r[:width])
			r = r[width:]
		}
		rows = append(rows, r)
	}
	t.rows, t.width = rows, width
}

func (t *terminal) String() string {
	lines := make([]string, 0, len(t.rows))
	for _, r := range t.rows {
		lines = append(lines, strings.TrimRight(string(r), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}
