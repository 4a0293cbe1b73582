package yamlkeys

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
)

// Codes of a file's problems. They are stable for scripts.
const (
	CodeSyntax    = "yaml-syntax"
	CodeDocuments = "several-documents"
	CodeTooLarge  = "too-large"
	CodeUnknown   = "unknown-key"
	CodeDuplicate = "duplicate-key"
	CodeMissing   = "missing-key"
	CodeType      = "wrong-type"
	CodeValue     = "bad-value"
	CodeSecret    = "secret-value"
)

const (
	// maxValues bounds the expansion of aliases and merge keys.
	maxValues = 20_000
	// maxMerge bounds chains of merge keys, which may be circular.
	maxMerge = 16
)

// Decoder decodes nodes by a Schema and collects every problem.
type Decoder struct {
	src      *source
	root     *Schema
	problems diag.List
	values   int
	full     bool // too many values, reported
	// origin is that of values in no file; empty for a position in src.
	origin string
}

// New returns a decoder of a document with the schema root. name and content are shown in problems.
func New(name, content string, root *Schema) *Decoder {
	return &Decoder{src: newSource(name, content), root: root}
}

// NewValues returns a decoder of values in no file, which come from a flag or the like.
func NewValues(from string, root *Schema) *Decoder {
	return &Decoder{src: newSource(from, ""), root: root, origin: from}
}

// MaxFile bounds a file in bytes.
const MaxFile = 1 << 20

// Document decodes the only document of a file. The value is complete only without problems.
func (d *Decoder) Document(content []byte) (v *Value, empty bool) {
	if len(content) > MaxFile {
		d.Report(&yaml.Node{Line: 1, Column: 1}, CodeTooLarge, "", "the file is larger than %d KiB", MaxFile>>10)
		return nil, false
	}
	if p := findUnreadable(d.src, content); p != nil {
		d.problems = append(d.problems, *p)
		return nil, false
	}
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, true
	case err != nil:
		d.problems = append(d.problems, syntaxProblem(d.src, content, err))
		return nil, false
	}
	switch err := dec.Decode(&more); {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.problems = append(d.problems, syntaxProblem(d.src, content, err))
		return nil, false
	default:
		d.Report(&more, CodeDocuments, "keep one document: remove the line ---", "the file holds one YAML document, here begins another")
	}
	if len(doc.Content) == 0 || IsNull(doc.Content[0]) {
		return nil, true
	}
	return d.Decode(d.root, doc.Content[0], doc.Content[0], ""), false
}

// Report adds a problem at a node.
func (d *Decoder) Report(at *yaml.Node, code, hint, format string, a ...any) {
	d.problems = append(d.problems, diag.Problem{
		File: d.src.name, Line: at.Line, Col: at.Column, Code: code, Hint: hint,
		Message: fmt.Sprintf(format, a...), Source: d.src.line(at.Line),
	})
}

// Hide masks a value in every message and excerpt.
func (d *Decoder) Hide(v string) { d.src.hide(v) }

// Found returns the problems with secrets masked, including secrets found after the report.
func (d *Decoder) Found() diag.List {
	for i := range d.problems {
		p := &d.problems[i]
		p.Message, p.Hint, p.Source = d.src.clean(p.Message), d.src.clean(p.Hint), d.src.clean(p.Source)
	}
	return d.problems.Sorted()
}

// spend counts n values; false if there are too many.
func (d *Decoder) spend(at *yaml.Node, n int) bool {
	d.values += n
	if d.values > maxValues && !d.full {
		d.full = true
		d.Report(at, CodeTooLarge, "use fewer aliases", "the file holds more than %d values when its aliases are expanded", maxValues)
	}
	return d.values <= maxValues
}

// Decode returns the value of a node, or nil if it is invalid. at is the node for problems of an empty value.
func (d *Decoder) Decode(s *Schema, n, at *yaml.Node, path string) *Value {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || !d.spend(at, 1) {
		return nil
	}
	v := &Value{Schema: s, Node: n, Path: path, Origin: d.origin}
	v.Origin = cmp.Or(v.Origin, fmt.Sprintf("%s:%d", d.src.name, n.Line))
	var ok bool
	switch {
	case s.Alt != nil && n.Kind == yaml.ScalarNode && !IsNull(n):
		return d.Decode(s.Alt, n, at, path)
	case s.Kind == List:
		ok = d.list(v, n)
	case s.Kind == Mapping:
		ok = d.mapping(v, n)
	case s.Kind == Object:
		ok = d.object(v, n, at)
	default:
		ok = d.scalar(v, n, at)
	}
	if !ok {
		return nil
	}
	if s.Check != nil {
		s.Check(d, v)
	}
	return v
}

// IsNull reports whether a value is empty or null.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func (d *Decoder) wrongType(v *Value, n *yaml.Node) bool {
	got := map[yaml.Kind]string{yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping", yaml.ScalarNode: "a single value"}[n.Kind]
	hint := ""
	switch {
	case v.Schema.Kind == List && n.Kind == yaml.ScalarNode:
		hint = "write it as a list, one `- item` per line"
	case v.Schema.Kind == Text && n.Kind == yaml.MappingNode:
		hint = "quote the text if it contains \": \""
	case v.Schema.Kind == Boolean && n.Kind == yaml.MappingNode && len(n.Content) > 0:
		hint = d.under(n.Content[0].Value, v.Path)
	case v.Schema.Kind == Mapping && n.Kind != yaml.MappingNode, v.Schema.Kind == Object && n.Kind != yaml.MappingNode:
		hint = "write `key: value` lines below it"
		if len(v.Schema.Keys) > 0 {
			hint += "; keys: " + strings.Join(v.Schema.keyNames(), ", ")
		}
	}
	d.Report(n, CodeType, hint, "%s must be %s, it is %s", cmp.Or(v.Path, "the file"), v.Schema.want(), got)
	return false
}

func (d *Decoder) list(v *Value, n *yaml.Node) bool {
	if IsNull(n) {
		return true
	}
	if n.Kind != yaml.SequenceNode {
		return d.wrongType(v, n)
	}
	for i, c := range n.Content {
		if d.values > maxValues {
			return false
		}
		if w := d.Decode(v.Schema.Item, c, c, fmt.Sprintf("%s[%d]", v.Path, i)); w != nil {
			v.Items = append(v.Items, w)
		}
	}
	return true
}

func (d *Decoder) mapping(v *Value, n *yaml.Node) bool {
	if IsNull(n) {
		return true
	}
	if n.Kind != yaml.MappingNode {
		return d.wrongType(v, n)
	}
	for _, p := range d.pairs(n, 0) {
		if s := v.Schema; s.Names != nil && !s.Names(p.name) {
			d.Report(p.key, CodeValue, "use "+s.NamesRule, "%q cannot be a name in %s", p.name, v.Path)
			continue
		}
		if w := d.Decode(v.Schema.Item, p.val, p.key, v.Path+"."+p.name); w != nil {
			v.Fields = append(v.Fields, Field{Name: p.name, Key: p.key, Value: w})
		}
	}
	return true
}

func (d *Decoder) object(v *Value, n, at *yaml.Node) bool {
	s := v.Schema
	var pairs []pair
	if !IsNull(n) {
		if n.Kind != yaml.MappingNode {
			return d.wrongType(v, n)
		}
		pairs = d.pairs(n, 0)
	}
	meant := map[string]bool{} // keys that are there, or that a slip stands for
	for _, p := range pairs {
		k, known := s.Find(p.name)
		if !known {
			if s.Ignore != "" && strings.HasPrefix(p.name, s.Ignore) {
				continue
			}
			hint, slip := d.suggest(s, v.Path, p.name)
			meant[slip] = true
			if strings.HasPrefix(v.Path, InSecrets) {
				// The key may be a misplaced value: do not repeat it.
				d.Report(p.key, CodeUnknown, hint, "unknown key%s", in(v.Path))
				continue
			}
			d.Report(p.key, CodeUnknown, hint, "unknown key %q%s", p.name, in(v.Path))
			continue
		}
		meant[k.Name] = true
		if w := d.Decode(k.Schema, p.val, p.key, Join(v.Path, k.Name)); w != nil {
			v.Fields = append(v.Fields, Field{Name: k.Name, Key: p.key, Value: w})
		}
	}
	for _, k := range s.Keys {
		switch {
		case meant[k.Name], k.Required && k.Instead != "" && meant[k.Instead]:
		case k.Required:
			d.Report(at, CodeMissing, example(k), "%s is missing", Join(v.Path, k.Name))
		case k.Def != "":
			v.Fields = append(v.Fields, Field{Name: k.Name, Value: d.fallback(k, Join(v.Path, k.Name))})
		}
	}
	return true
}

func (d *Decoder) fallback(k Key, path string) *Value {
	f := &Decoder{src: d.src, root: d.root, origin: "default"}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: k.Def}
	return f.Decode(k.Schema, n, n, path)
}

// suggest returns what an unknown key may mean.
func (d *Decoder) suggest(s *Schema, path, name string) (hint, meant string) {
	for _, k := range s.Keys {
		if slices.Contains(k.Slips, strings.ToLower(name)) {
			return fmt.Sprintf("did you mean %q?", k.Name), k.Name
		}
	}
	if near := diag.Nearest(name, s.keyNames()); near != "" {
		return fmt.Sprintf("did you mean %q?", near), near
	}
	if _, ok := d.root.Find(name); ok && path != "" {
		return fmt.Sprintf("%q belongs at the top of the file", name), ""
	}
	if hint := d.under(name, path); hint != "" {
		return hint, ""
	}
	if below := d.below(name); path == "" && below != "" {
		return "did you mean " + below + "?", ""
	}
	return "known keys: " + strings.Join(s.keyNames(), ", "), ""
}

// under returns the only other key of the file with a child of that name; "" if there is none.
func (d *Decoder) under(name, path string) string {
	for _, k := range d.root.Keys {
		if _, ok := k.Find(name); ok && k.Name != path {
			return fmt.Sprintf("%q belongs under %q", name, k.Name)
		}
	}
	return ""
}

// below returns a key of the file with such a slip, if there is only one.
func (d *Decoder) below(name string) string {
	found := ""
	for _, k := range d.root.Keys {
		for _, inner := range k.Keys {
			if !slices.Contains(inner.Slips, strings.ToLower(name)) {
				continue
			}
			if found != "" {
				return ""
			}
			found = fmt.Sprintf("%q under %q", inner.Name, k.Name)
		}
	}
	return found
}

func example(k Key) string {
	switch {
	case len(k.Examples) > 0:
		return fmt.Sprintf("add `%s: %s`", k.Name, k.Examples[0])
	case len(k.Enum) > 0:
		return fmt.Sprintf("add `%s: %s`", k.Name, k.Enum[0])
	}
	return fmt.Sprintf("add `%s:` (%s)", k.Name, k.Doc)
}

func in(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

// Join appends a name to a path.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// pair is an entry of a mapping node, after merge keys.
type pair struct {
	name     string
	key, val *yaml.Node
}

// pairs returns the entries of a mapping with merge keys resolved; its own entries take precedence. A duplicate key is
// a problem.
func (d *Decoder) pairs(n *yaml.Node, depth int) []pair {
	own := map[string]*yaml.Node{}
	var merged, all []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, val := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.AliasNode && k.Alias != nil {
			k = k.Alias
		}
		switch {
		case k.Kind != yaml.ScalarNode:
			d.Report(n.Content[i], CodeType, "", "a key must be a single word")
		case k.ShortTag() == "!!merge":
			merged = append(merged, d.merge(val, depth)...)
		case own[k.Value] != nil:
			d.Report(k, CodeDuplicate, "keep one of the two", "key %q is given twice; first at line %d", k.Value, own[k.Value].Line)
		default:
			own[k.Value] = k
			all = append(all, pair{k.Value, k, val})
		}
	}
	for _, p := range merged {
		if own[p.name] == nil {
			own[p.name] = p.key
			all = append(all, p)
		}
	}
	return all
}

func (d *Decoder) merge(n *yaml.Node, depth int) []pair {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || !d.spend(n, 1) {
		return nil
	}
	switch {
	case depth >= maxMerge:
		d.Report(n, CodeTooLarge, "do not merge a mapping into itself", "merge keys are nested more than %d deep", maxMerge)
	case n.Kind == yaml.MappingNode:
		p := d.pairs(n, depth+1)
		d.spend(n, len(p))
		return p
	case n.Kind == yaml.SequenceNode:
		var all []pair
		for _, c := range n.Content {
			if d.values > maxValues {
				return nil
			}
			all = append(all, d.merge(c, depth+1)...)
		}
		return all
	default:
		d.Report(n, CodeType, "write `<<: *anchor`", "a merge key needs a mapping")
	}
	return nil
}
