package detect

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// tomlLine is a line outside of values: empty, a comment, the name of a table, or a key.
var tomlLine = lazyregexp.New(`^\s*(?:#.*|\[.+\]\s*(?:#.*)?|[\w"'-][^=]*=\s*\S.*)?$`)

// toml opens a file of the directory, unless its lines, strings or brackets show that no parser reads it.
func (d *detector) toml(name string) *file {
	f := d.open(name)
	if f == nil {
		return nil
	}
	depth, quote, number := 0, "", 0
	for line := range strings.Lines(f.text) {
		number++
		if depth == 0 && quote == "" && !tomlLine.MatchString(strings.TrimRight(line, "\n")) {
			d.omit(Position{f.name, number}, f.name, "the line is not TOML")
			return nil
		}
		for i := 0; i < len(line); i++ {
			rest := line[i:]
			switch {
			case quote != "" && quote[0] == '"' && line[i] == '\\':
				i++
			case quote != "" && strings.HasPrefix(rest, quote):
				i += len(quote) - 1
				for len(quote) > 1 && i+1 < len(line) && line[i+1] == quote[0] { // the text may end in quotes
					i++
				}
				quote = ""
			case quote != "":
			case strings.HasPrefix(rest, `"""`), strings.HasPrefix(rest, "'''"):
				quote = rest[:3]
				i += 2
			case line[i] == '"', line[i] == '\'':
				quote = line[i : i+1]
			case line[i] == '#':
				i = len(line)
			case line[i] == '[', line[i] == '{':
				depth++
			case line[i] == ']', line[i] == '}':
				depth--
			}
		}
		if len(quote) == 1 {
			depth = -1 // a string does not end on its line
		}
		if depth < 0 {
			d.omit(Position{f.name, number}, f.name, "the line is not TOML")
			return nil
		}
	}
	if depth != 0 || quote != "" {
		d.omit(Position{File: f.name}, f.name, "a value of it does not end")
		return nil
	}
	return f
}
