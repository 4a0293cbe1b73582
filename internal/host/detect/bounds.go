package detect

import (
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

const (
	// maxDeep bounds how far brackets nest: parsers take memory and time with the depth, and files that people write stay below 20.
	maxDeep = 100
	// maxAllWorkflows bounds the workflows together: each takes the parser seconds per megabyte.
	maxAllWorkflows = 1 << 20
	// maxText bounds the value of a variable, in bytes.
	maxText = 4000
	// maxLines bounds lines of a text that are compared with what the repository has.
	maxLines = 2000
)

// plainName reports whether the name of a file can be printed and written into a comment: any other is not looked at, since a line
// break in one would begin a line of the project file.
func plainName(name string) bool { return utf8.ValidString(name) && text.Printable(name) == name }

// shown is a name that cannot be printed, as a text that can be.
func shown(name string) string { return text.Printable(fmt.Sprintf("%q", name)) }

// plainNames leaves out what has a name that cannot be shown, and says so.
func (s *source) plainNames(dir string, entries []fs.DirEntry) (plain []fs.DirEntry) {
	for _, e := range entries {
		if plainName(e.Name()) {
			plain = append(plain, e)
			continue
		}
		s.omit(Position{File: dir}, shown(e.Name()), "its name has characters that cannot be printed")
	}
	return plain
}

// deep reports whether brackets of a text nest too far. Those in strings and comments count, which no file that people write notices.
func deep(text string) bool {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > maxDeep {
			return true
		}
	}
	return false
}

var errDeep = fmt.Errorf("its brackets nest more than %d deep", maxDeep)

// linked reports whether a file lies below something that is no folder: a symbolic link, or a submodule.
func linked(tree fs.FS, name string) bool {
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		st, err := fs.Lstat(tree, name[:i])
		if err != nil {
			return false
		}
		if !st.IsDir() {
			return true
		}
	}
	return false
}

// withoutVariables are the lines of a file of variables that hold no other variable: what they stand for may multiply without end.
func withoutVariables(content string) string {
	var plain strings.Builder
	for line := range strings.Lines(content) {
		if !strings.Contains(line, "$") {
			plain.WriteString(line)
		}
	}
	return plain.String()
}
