package surface

import (
	"bytes"
	"path"
	"strings"
)

// Modes of git's trees.
const (
	modeNone       = "000000"
	modeFile       = "100644"
	modeExecutable = "100755"
	modeLink       = "120000"
	modeSubmodule  = "160000"
)

// change is one path that differs.
type change struct {
	path             string
	lower            string // the path in lower case: some file systems do not tell them apart
	oldMode, newMode string
	oldID, newID     string
	oldSize, newSize int64
	rule             *pathRule // nil means no settings, only text
	as               string    // the link of head that leads here, when its rule counts

	old, new string // contents, when read
	read     bool
	why      string // why it was not read

	room *int // what of the change may still be compared with patterns; nil means all
	used int
	cut  bool // not all of it was

	diffed  bool
	added   []line
	removed []line
}

type line struct {
	n    int // from 1
	text string
}

func newChange(p string) *change { return &change{path: p, lower: strings.ToLower(p)} }

// deleted and created say what happened to the path as a file with content.
func (c *change) deleted() bool { return c.newMode == modeNone }
func (c *change) created() bool { return c.oldMode == modeNone }

// base and ext are of the path in lower case.
func (c *change) base() string { return path.Base(c.lower) }
func (c *change) ext() string  { return path.Ext(c.lower) }

func isFile(mode string) bool { return mode == modeFile || mode == modeExecutable || mode == "100664" }

// isBinary is git's own test: a NUL early in the file.
func isBinary(s string) bool { return strings.IndexByte(s[:min(len(s), 8000)], 0) >= 0 }

// diff finds the lines that only one side has. Equal lines at both ends are left away, and of the rest
// each line of base pairs with one equal line of head, wherever that is: linear, whatever the input.
func (c *change) diff() {
	if c.diffed {
		return
	}
	c.diffed = true
	a, b := splitLines(c.old), splitLines(c.new)
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	for len(a) > start && len(b) > start && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	count := make(map[string]int, len(a)-start)
	for _, l := range a[start:] {
		count[l]++
	}
	for i := start; i < len(b); i++ {
		if count[b[i]] > 0 {
			count[b[i]]--
			continue
		}
		c.added = append(c.added, line{i + 1, b[i]})
	}
	for i := start; i < len(a); i++ {
		if count[a[i]] > 0 {
			count[a[i]]--
			c.removed = append(c.removed, line{i + 1, a[i]})
		}
	}
}

// spend takes n bytes of what may be compared with patterns.
func (c *change) spend(n int) bool {
	if c.cut || c.used+n > maxFilePatterns || c.room != nil && *c.room < n {
		c.cut = true
		return false
	}
	c.used += n
	if c.room != nil {
		*c.room -= n
	}
	return true
}

// splitLines cuts at LF, and takes the CR of CRLF away.
func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	ls := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i, l := range ls {
		ls[i] = strings.TrimSuffix(l, "\r")
	}
	return ls
}

// text is content as it is compared: without a byte order mark, UTF-16 made readable.
func text(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte{0xEF, 0xBB, 0xBF}):
		return string(b[3:])
	case bytes.HasPrefix(b, []byte{0xFF, 0xFE}), bytes.HasPrefix(b, []byte{0xFE, 0xFF}):
		return fromUTF16(b[2:], b[0] == 0xFE)
	}
	return string(b)
}

// fromUTF16 decodes what some editors write; settings in it work as others do.
func fromUTF16(b []byte, bigEndian bool) string {
	var out strings.Builder
	for i := 0; i+1 < len(b); i += 2 {
		r := rune(b[i]) | rune(b[i+1])<<8
		if bigEndian {
			r = rune(b[i])<<8 | rune(b[i+1])
		}
		out.WriteRune(r) // a surrogate becomes the replacement character
	}
	return out.String()
}
