package yamlkeys

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Change is a kind of edit.
type Change int

// Changes.
const (
	ChangeSet   Change = iota // sets a value
	ChangeAdd                 // appends items to a list, or sets entries of a mapping
	ChangeUnset               // removes a value, or the given items or entries
)

// Edit changes the value of a key in a document. A word is a value, an item of a list, or NAME=VALUE of a mapping.
type Edit struct {
	Change Change
	Key    string
	Words  []string
}

// ErrNotSet means that a document does not have a key or item.
var ErrNotSet = errors.New("not set")

// Apply returns the content with the edit. Lines that do not belong to the value stay as they are. It does not check values.
func (e Edit) Apply(content []byte, root *Schema) ([]byte, error) {
	if e.Change != ChangeSet && len(e.Words) > 1 {
		for _, w := range e.Words {
			var err error
			if content, err = (Edit{e.Change, e.Key, []string{w}}).Apply(content, root); err != nil {
				return nil, err
			}
		}
		return content, nil
	}
	path, s, err := root.steps(e.Key)
	if err != nil {
		return nil, err
	}
	if s.Kind == Mapping && e.Change != ChangeSet && len(e.Words) == 1 { // an edit of the entry
		name, value, ok := strings.Cut(e.Words[0], "=")
		if e.Change == ChangeAdd {
			if !ok {
				return nil, pathErrorf("", "%s: use NAME=VALUE instead of %q", e.Key, e.Words[0])
			}
			e.Change, e.Words = ChangeSet, []string{value}
		} else {
			e.Words = nil
		}
		path, s = append(path, step{name, -1, s, Join(e.Key, name)}), s.Item
	}
	if e.Change != ChangeSet && len(e.Words) > 0 && s.Kind != List {
		return nil, pathErrorf("use `set`", "%s is %s, not a list or mapping", e.Key, s.want())
	}
	ed, err := newEditor(content)
	if err != nil {
		return nil, err
	}
	if err := ed.walk(e, path, s); err != nil {
		return nil, err
	}
	return ed.result()
}

// editor changes a document's nodes, and then the lines of the innermost entry in block style that has all changes.
type editor struct {
	doc   *yaml.Node
	empty bool // the document has no mapping yet
	lines []string
	eol   string
	chain []position
	level int  // the entry of the chain whose lines change; -1 before a change
	gone  bool // its lines are removed, not replaced
}

// position is an entry of a mapping or item of a list on the path to a change, with its lines in the document.
type position struct {
	in       *yaml.Node
	at       int // the index in in.Content, of an entry that of its value
	from, to int // the lines, counted from 0; to is exclusive; a new entry has none
	col      int // the number of characters before it in its first line
}

func newEditor(content []byte) (*editor, error) {
	ed := &editor{doc: &yaml.Node{}, lines: strings.SplitAfter(string(content), "\n"), eol: "\n", level: -1}
	if err := yaml.Unmarshal(content, ed.doc); err != nil {
		return nil, err
	}
	if len(ed.doc.Content) == 0 || IsNull(ed.doc.Content[0]) {
		ed.doc, ed.empty = &yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}, true
	}
	if bytes.Contains(content, []byte("\r\n")) {
		ed.eol = "\r\n"
	}
	if last := len(ed.lines) - 1; ed.lines[last] == "" {
		ed.lines = ed.lines[:last]
	} else {
		ed.lines[last] += ed.eol
	}
	return ed, nil
}

// walk follows the path as far as the document has it, and changes the rest.
func (ed *editor) walk(e Edit, path []step, s *Schema) error {
	at, above := ed.doc.Content[0], ""
	for i, p := range path {
		n, err := child(at, p, above)
		above = p.key
		switch {
		case err != nil:
			return err
		case n < 0 && (e.Change == ChangeUnset || p.index >= 0):
			return fmt.Errorf("%s: %w", p.key, ErrNotSet)
		case n < 0:
			v, err := nested(e, path[i+1:], s)
			if err != nil {
				return err
			}
			ed.insert(at, text(p.name), v)
			return nil
		}
		ed.enter(at, n)
		if i == len(path)-1 {
			return ed.change(e, s)
		}
		next, below := at.Content[n], path[i+1]
		if next.Kind == yaml.ScalarNode && below.index < 0 && (IsNull(next) || below.of.Kind == Object && below.of.Alt != nil) {
			if below.short() && i+1 == len(path)-1 && e.Change == ChangeSet && !IsNull(next) {
				return ed.change(e, s) // the short form stands for this key
			}
			long := &yaml.Node{Kind: yaml.MappingNode, Anchor: next.Anchor}
			if !IsNull(next) {
				long.Content = []*yaml.Node{text(below.of.Keys[0].Name), {Kind: yaml.ScalarNode, Value: next.Value, Tag: next.Tag, Style: next.Style}}
			}
			ed.replace(long)
			next = long
		}
		at = next
	}
	return nil
}

// child returns the index of a step's value in a node; -1 if there is none.
func child(n *yaml.Node, p step, key string) (int, error) {
	switch {
	case n.Kind == yaml.AliasNode:
		return 0, pathErrorf("edit the file", "%s is the alias *%s, whose values other keys may share", key, n.Value)
	case p.index >= 0 && n.Kind == yaml.SequenceNode:
		if p.index < len(n.Content) {
			return p.index, nil
		}
		return -1, nil
	case p.index < 0 && n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k := n.Content[i]; k.Kind == yaml.ScalarNode && k.Value == p.name {
				return i + 1, nil
			}
		}
		return -1, nil
	}
	return 0, pathErrorf("unset "+key+" first", "%s is neither a mapping nor a list", key)
}

// nested returns the value of a key that is below mappings which do not exist yet.
func nested(e Edit, path []step, s *Schema) (*yaml.Node, error) {
	if len(path) == 0 {
		if e.Change == ChangeAdd {
			list := *s
			list.Alt, s = nil, &list
		}
		return s.node(e.Key, e.Words)
	}
	if path[0].index >= 0 {
		return nil, fmt.Errorf("%s: %w", e.Key, ErrNotSet)
	}
	v, err := nested(e, path[1:], s)
	if err != nil {
		return nil, err
	}
	return &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text(path[0].name), v}}, nil
}

// change changes the value at the end of the chain.
func (ed *editor) change(e Edit, s *Schema) error {
	p := ed.chain[len(ed.chain)-1]
	old := p.in.Content[p.at]
	switch {
	case e.Change == ChangeUnset && len(e.Words) == 0:
		ed.remove()
	case e.Change == ChangeUnset:
		n := -1
		if old.Kind == yaml.SequenceNode {
			n = slices.IndexFunc(old.Content, func(item *yaml.Node) bool { return item.Kind == yaml.ScalarNode && item.Value == e.Words[0] })
		}
		if n < 0 {
			return fmt.Errorf("%s: %q: %w", e.Key, e.Words[0], ErrNotSet)
		}
		ed.enter(old, n)
		ed.remove()
	case e.Change == ChangeAdd && old.Kind == yaml.AliasNode:
		return pathErrorf("edit the file", "%s is the alias *%s, whose values other keys may share", e.Key, old.Value)
	case e.Change == ChangeAdd && old.Kind == yaml.SequenceNode:
		item, err := s.Item.node(e.Key, e.Words)
		if err != nil {
			return err
		}
		ed.insert(old, item)
	case s.Kind == Object && old.Kind == yaml.MappingNode && e.Change == ChangeSet:
		return pathErrorf(fmt.Sprintf("set %s.%s, or unset %[1]s first", e.Key, s.Keys[0].Name), "%s has keys of its own", e.Key)
	default:
		v, err := nested(e, nil, s)
		if err != nil {
			return err
		}
		if e.Change == ChangeAdd && !IsNull(old) { // the list was in its short form
			v.Content = append([]*yaml.Node{text(old.Value)}, v.Content...)
		}
		if v.Kind == yaml.ScalarNode && old.Kind == yaml.ScalarNode {
			v.LineComment = old.LineComment
			if v.Style == 0 && !strings.Contains(v.Value, "\n") {
				v.Style = old.Style & (yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle)
			}
		}
		v.Anchor = old.Anchor
		ed.replace(v)
	}
	return nil
}

// enter makes an entry the end of the chain.
func (ed *editor) enter(in *yaml.Node, at int) {
	p := position{in: in, at: at}
	if in.Style&yaml.FlowStyle == 0 && in.Line > 0 {
		ed.locate(&p)
	}
	ed.chain = append(ed.chain, p)
}

// locate finds the lines of an entry in block style. It leaves to at 0 if the layout is unusual.
func (ed *editor) locate(p *position) {
	line, lists := p.in.Content[p.at].Line, false // lists: lists at the column of their key
	p.col = p.in.Column - 1
	if v := p.in.Content[p.at]; p.in.Kind == yaml.MappingNode {
		key := p.in.Content[p.at-1]
		line, p.col = key.Line, key.Column-1
		lists = v.Kind == yaml.SequenceNode && v.Style&yaml.FlowStyle == 0 && v.Column == key.Column
	}
	first := ed.lines[line-1]
	if len(first) <= p.col || p.in.Kind == yaml.SequenceNode && first[p.col] != '-' {
		return
	}
	p.from, p.to = line-1, line
	for n := line; n < len(ed.lines); n++ {
		l := strings.TrimLeft(ed.lines[n], " ")
		switch indent := len(ed.lines[n]) - len(l); {
		case strings.TrimSpace(l) == "": // counts if more follows
		case indent > p.col, lists && indent == p.col && (strings.HasPrefix(l, "- ") || strings.TrimSpace(l) == "-"):
			p.to = n + 1
		case !strings.HasPrefix(l, "#"):
			return
		}
	}
}

// replace replaces the value at the end of the chain.
func (ed *editor) replace(v *yaml.Node) {
	p := ed.chain[len(ed.chain)-1]
	p.in.Content[p.at] = v
	ed.changed(false)
}

// remove removes the entry at the end of the chain.
func (ed *editor) remove() {
	p := ed.chain[len(ed.chain)-1]
	from := p.at
	if p.in.Kind == yaml.MappingNode {
		from--
	}
	p.in.Content = slices.Delete(p.in.Content, from, p.at+1)
	ed.changed(true)
}

// insert appends an entry to the mapping or list below the end of the chain.
func (ed *editor) insert(in *yaml.Node, nodes ...*yaml.Node) {
	if len(in.Content) == 0 {
		in.Style &^= yaml.FlowStyle
	} else { // after the lines of the last entry
		ed.enter(in, len(in.Content)-1)
		p := &ed.chain[len(ed.chain)-1]
		p.from, p.at = p.to, p.at+len(nodes)
	}
	in.Content = append(in.Content, nodes...)
	ed.changed(false)
}

// changed records a change at the end of the chain, unless an entry that contains it is replaced.
func (ed *editor) changed(gone bool) {
	if ed.level < 0 {
		ed.level, ed.gone = len(ed.chain)-1, gone
	}
}

// result returns the edited content.
func (ed *editor) result() ([]byte, error) {
	if ed.empty {
		b, err := encode(ed.doc)
		return append([]byte(strings.Join(ed.lines, "")), b...), err
	}
	for ; ed.level >= 0; ed.level, ed.gone = ed.level-1, false {
		p := ed.chain[ed.level]
		if p.to == 0 || ed.gone && (len(p.in.Content) == 0 || strings.TrimSpace(ed.lines[p.from][:p.col]) != "") {
			continue
		}
		out, err := ed.splice(p)
		if err != nil {
			return nil, err
		}
		var after yaml.Node
		if yaml.Unmarshal(out, &after) == nil && same(&after, ed.doc) {
			return out, nil
		}
	}
	return encode(ed.doc) // the layout is unusual
}

// splice returns the content with other lines for an entry.
func (ed *editor) splice(p position) ([]byte, error) {
	var lines []string
	if !ed.gone {
		one := &yaml.Node{Kind: p.in.Kind}
		if p.in.Kind == yaml.MappingNode {
			one.Content = []*yaml.Node{bare(p.in.Content[p.at-1])}
		}
		one.Content = append(one.Content, bare(p.in.Content[p.at]))
		b, err := encode(one)
		if err != nil {
			return nil, err
		}
		lines = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		for i, l := range lines {
			switch {
			case i == 0 && p.from < p.to:
				lines[i] = ed.lines[p.from][:p.col] + l + ed.eol
			case l == "":
				lines[i] = ed.eol
			default:
				lines[i] = strings.Repeat(" ", p.col) + l + ed.eol
			}
		}
	}
	return []byte(strings.Join(slices.Concat(ed.lines[:p.from], lines, ed.lines[p.to:]), "")), nil
}

// bare returns a node without the comments on other lines, which stay where they are.
func bare(n *yaml.Node) *yaml.Node {
	c := *n
	c.HeadComment, c.FootComment = "", ""
	return &c
}

func encode(n *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	const indent = 2
	enc.SetIndent(indent)
	err := errors.Join(enc.Encode(n), enc.Close())
	return b.Bytes(), err
}

// same reports whether two documents have the same values.
func same(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.Value != b.Value || a.Anchor != b.Anchor || len(a.Content) != len(b.Content) ||
		a.Kind == yaml.ScalarNode && a.ShortTag() != b.ShortTag() {
		return false
	}
	for i := range a.Content {
		if !same(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}
