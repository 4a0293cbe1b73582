package surface

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// leaf is one value of a document, with the keys that lead to it; of a list the key is "[]".
type leaf struct {
	path  []string
	value string
	line  int
}

// key is the last name above the value.
func (l leaf) key() string {
	for _, p := range slices.Backward(l.path) {
		if p != "[]" {
			return p
		}
	}
	return ""
}

func (l leaf) id() string { return strings.Join(l.path, "\x00") + "\x01" + l.value }

// has reports whether one of the keys above the value is name.
func (l leaf) has(name string) bool {
	return slices.Contains(l.path, name)
}

// where is the path for a human.
func (l leaf) where() string {
	return strings.ReplaceAll(strings.Join(l.path, "."), ".[]", "[]")
}

// walkJSON calls f for each value of a JSON document, comments and trailing commas allowed.
// A key that occurs twice is told twice: parsers differ in which one they take.
func walkJSON(s string, f func(leaf)) error {
	s = stripComments(s)
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	w := &jsonWalk{d: d, s: s, line: 1, f: f}
	if err := w.value(nil); err != nil {
		return fmt.Errorf("read JSON at line %d: %w", w.line, err)
	}
	return nil
}

type jsonWalk struct {
	d      *json.Decoder
	s      string
	at     int
	line   int
	budget leafBudget
	f      func(leaf)
}

// leafBudget bounds what a document may make of itself.
type leafBudget struct{ leaves, names int }

func (b *leafBudget) spend(path []string) error {
	b.leaves++
	for _, p := range path {
		b.names += len(p) + 1
	}
	if b.leaves > maxLeaves || b.names > maxNames {
		return fmt.Errorf("more than %d values, or %s of names above them", maxLeaves, bytesText(maxNames))
	}
	return nil
}

func (w *jsonWalk) token() (json.Token, error) {
	t, err := w.d.Token()
	to := min(int(w.d.InputOffset()), len(w.s))
	w.line += strings.Count(w.s[w.at:to], "\n")
	w.at = to
	return t, err
}

func (w *jsonWalk) value(path []string) error {
	t, err := w.token()
	if err != nil {
		return err
	}
	if len(path) > maxDepth {
		return fmt.Errorf("more than %d levels", maxDepth)
	}
	switch v := t.(type) {
	case json.Delim:
		for w.d.More() {
			key := "[]"
			if v == '{' {
				k, err := w.token()
				if err != nil {
					return err
				}
				key, _ = k.(string)
			}
			if err := w.value(append(path, key)); err != nil {
				return err
			}
		}
		_, err := w.token()
		return err
	case nil:
		return w.leaf(path, "null")
	default:
		return w.leaf(path, fmt.Sprint(v))
	}
}

// leaf passes a value on. The path is valid during the call only.
func (w *jsonWalk) leaf(path []string, value string) error {
	if err := w.budget.spend(path); err != nil {
		return err
	}
	w.f(leaf{path: path, value: value, line: w.line})
	return nil
}

// stripComments replaces comments and trailing commas by blanks, so that offsets stay.
func stripComments(s string) string {
	b := []byte(s)
	comma := -1 // a comma after which only white space and comments came
	for i := 0; i < len(b); {
		switch {
		case b[i] == '"':
			comma = -1
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case b[i] == '/' && i+1 < len(b) && (b[i+1] == '/' || b[i+1] == '*'):
			i = blankComment(b, i)
		case b[i] == ',':
			comma = i
			i++
		case b[i] == '}' || b[i] == ']':
			if comma >= 0 {
				b[comma] = ' '
			}
			comma = -1
			i++
		case b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r':
			i++
		default:
			comma = -1
			i++
		}
	}
	return string(b)
}

// blankComment blanks the comment at i and says where it ends.
func blankComment(b []byte, i int) int {
	block := b[i+1] == '*'
	b[i], b[i+1] = ' ', ' '
	for i += 2; i < len(b); i++ {
		if block && b[i] == '*' && i+1 < len(b) && b[i+1] == '/' {
			b[i], b[i+1] = ' ', ' '
			return i + 2
		}
		if b[i] == '\n' {
			if !block {
				return i
			}
			continue
		}
		b[i] = ' '
	}
	return i
}

// walkYAML calls f for each value of a YAML file, all its documents. Aliases are not followed: what they
// stand for is told where it is written.
func walkYAML(s string, f func(leaf)) error {
	if len(s) > maxYAML {
		return fmt.Errorf("read YAML: it has more than %s", bytesText(maxYAML))
	}
	d := yaml.NewDecoder(strings.NewReader(s))
	var budget leafBudget
	for {
		var n yaml.Node
		if err := d.Decode(&n); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read YAML: %w", err)
		}
		if err := walkNode(&n, nil, &budget, f); err != nil {
			return err
		}
	}
}

func walkNode(n *yaml.Node, path []string, budget *leafBudget, f func(leaf)) error {
	if len(path) > maxDepth {
		return fmt.Errorf("read YAML: more than %d levels", maxDepth)
	}
	if err := budget.spend(path); err != nil {
		return fmt.Errorf("read YAML: %w", err)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		for _, c := range n.Content {
			if err := walkNode(c, path, budget, f); err != nil {
				return err
			}
		}
	case yaml.SequenceNode:
		for _, c := range n.Content {
			if err := walkNode(c, append(path, "[]"), budget, f); err != nil {
				return err
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if err := walkNode(n.Content[i+1], append(path, n.Content[i].Value), budget, f); err != nil {
				return err
			}
		}
		if len(n.Content) == 0 {
			f(leaf{path: path, value: "{}", line: n.Line})
		}
	case yaml.AliasNode:
		f(leaf{path: path, value: "*" + n.Value, line: n.Line})
	case yaml.ScalarNode:
		line := n.Line
		if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			line++ // the text begins below its mark
		}
		f(leaf{path: path, value: n.Value, line: line})
	}
	return nil
}

// newLeaves are the values that head has and base has not at the same keys, and the reverse.
func newLeaves(c *change, walk func(string, func(leaf)) error) (added, removed []leaf, err error) {
	count := map[string]int{}
	keep := map[string]leaf{}
	own := func(l leaf) leaf { l.path = append([]string{}, l.path...); return l }
	if c.old != "" {
		// A base that could not be read counts as nothing: then all of head is new.
		_ = walk(c.old, func(l leaf) {
			id := l.id()
			count[id]++
			keep[id] = own(l)
		})
	}
	if strings.TrimSpace(c.new) != "" {
		err = walk(c.new, func(l leaf) {
			if id := l.id(); count[id] > 0 {
				count[id]--
				return
			}
			if !c.spend(min(len(l.value), maxCommand)) {
				return
			}
			added = append(added, own(l))
		})
	}
	for id, n := range count {
		if n > 0 {
			removed = append(removed, keep[id])
		}
	}
	slices.SortFunc(removed, func(a, b leaf) int { return cmp.Or(a.line-b.line, strings.Compare(a.id(), b.id())) })
	return added, removed, err
}
