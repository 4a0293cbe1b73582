package yamlkeys

import (
	"bytes"
	"errors"
	"io"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// findUnreadable reports bytes that are no text, with their position.
func findUnreadable(src *source, content []byte) *diag.Problem {
	line, col := 1, 1
	for rest := content; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && n == 1:
			return &diag.Problem{
				File: src.name, Line: line, Col: col, Code: CodeSyntax, Message: "the file is not UTF-8 text",
				Hint: "save it as UTF-8",
			}
		case r < 0x20 && r != '\n' && r != '\r' && r != '\t' || r == 0x7f:
			return &diag.Problem{
				File: src.name, Line: line, Col: col, Code: CodeSyntax, Message: "control character in the file",
				Hint: "remove it", Source: src.line(line),
			}
		case r == '\r' && bytes.HasPrefix(rest, []byte("\r\n")):
		case strings.ContainsRune("\n\r\u0085\u2028\u2029", r):
			line, col = line+1, 0
		}
		col++
		rest = rest[n:]
	}
	return nil
}

var yamlError = lazyregexp.New(`^yaml: (?:line (\d+): )?(.*)$`)

// syntaxProblem gives an error of the YAML reader a position: the reader's may be where an enclosing block began. The
// faulty line is the first whose prefix of the file fails in the same way.
func syntaxProblem(src *source, content []byte, err error) diag.Problem {
	first, _, _ := strings.Cut(err.Error(), "\n")
	m := yamlError.FindStringSubmatch(first)
	if m == nil {
		return diag.Problem{File: src.name, Line: 1, Col: 1, Code: CodeSyntax, Message: src.clean(first)}
	}
	line, _ := strconv.Atoi(m[1])
	message := m[2]
	switch {
	case strings.Contains(message, "unknown anchor"):
		line = max(line, lineOf(content, "*"+between(message, "'")))
	case !strings.Contains(message, "unexpected end of stream"):
		line = failingLine(content, message)
	}
	line = max(line, 1)
	text := src.line(line)
	p := diag.Problem{File: src.name, Line: line, Code: CodeSyntax, Message: src.clean(message), Source: text}
	p.Col = len([]rune(text)) - len([]rune(strings.TrimLeft(text, " \t"))) + 1
	p.Hint = syntaxHint(message, text)
	if tab := strings.IndexRune(text, '\t'); strings.Contains(message, "cannot start any token") && tab >= 0 &&
		strings.TrimSpace(text[:tab]) == "" {
		p.Col = tab + 1
		p.Message = "a tab is used for indentation"
	}
	return p
}

func syntaxHint(message, line string) string {
	switch {
	case strings.Contains(message, "cannot start any token") && strings.Contains(line, "\t"):
		return "YAML allows only spaces for indentation"
	case strings.Contains(message, "cannot start any token"):
		return "quote values that start with @, ` or %"
	case strings.Contains(message, "mapping values are not allowed"):
		return "quote values that contain \": \", and check the indentation"
	case strings.Contains(message, "unexpected end of stream"):
		return "a quote or bracket that begins here is never closed"
	case strings.Contains(message, "expected key"), strings.Contains(message, "'-' indicator"), strings.Contains(message,
		"could not find expected ':'"):
		return "check the indentation of this line, and that `key: value` has its colon"
	case strings.Contains(message, "unknown anchor"):
		return "define it before its use with &"
	}
	return ""
}

// failingLine returns the first line whose prefix of the file fails with this message.
func failingLine(content []byte, message string) int {
	var ends []int
	for _, at := range lineBreaks.FindAllIndex(content, -1) {
		ends = append(ends, at[1])
	}
	ends = append(ends, len(content))
	n := sort.Search(len(ends), func(i int) bool {
		err := readAll(content[:ends[i]])
		return err != nil && strings.Contains(err.Error(), message)
	})
	return min(n+1, len(ends))
}

func readAll(content []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func lineOf(content []byte, what string) int {
	before, _, ok := bytes.Cut(content, []byte(what))
	if !ok {
		return 1
	}
	return len(splitLines(string(before)))
}

func between(s, quote string) string {
	_, s, _ = strings.Cut(s, quote)
	s, _, _ = strings.Cut(s, quote)
	return s
}
