package projects

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
)

// Codes of the problems of a project file. They are stable: scripts may look at them.
const (
	codeSyntax      = "yaml-syntax"
	codeEmpty       = "empty-file"
	codeDocuments   = "several-documents"
	codeTooLarge    = "too-large"
	codeUnknown     = "unknown-key"
	codeDuplicate   = "duplicate-key"
	codeMissing     = "missing-key"
	codeType        = "wrong-type"
	codeValue       = "bad-value"
	codeUnsupported = "not-supported"
	codeConflict    = "conflict"
	codeSecret      = "secret-value"
	codeHostMount   = "host-mount"
)

const (
	// maxValues bounds what aliases and merge keys may expand to. A large project
	// has a few hundred values.
	maxValues = 20_000
	// maxMerge bounds chains of merge keys, which may be circular.
	maxMerge = 16
	// extension starts top-level keys that are ignored: a place for anchors.
	extension = "x-"
)

// decoder turns nodes into values by the table and collects every problem.
type decoder struct {
	src      *source
	root     *schema
	problems diag.List
	values   int
	full     bool // too many values, reported
	// origin of values that are in no file; empty means the place in src.
	origin string
}

// report adds a problem at the place of a node.
func (d *decoder) report(at *yaml.Node, code, hint, format string, a ...any) {
	d.problems = append(d.problems, diag.Problem{
		File: d.src.name, Line: at.Line, Col: at.Column, Code: code, Hint: hint,
		Message: fmt.Sprintf(format, a...), Source: d.src.line(at.Line),
	})
}

// found returns the problems, with everything masked that turned out to be
// secret while decoding, also what was reported before it was known.
func (d *decoder) found() diag.List {
	for i := range d.problems {
		p := &d.problems[i]
		p.Message, p.Hint, p.Source = d.src.clean(p.Message), d.src.clean(p.Hint), d.src.clean(p.Source)
	}
	return d.problems.Sorted()
}

// spend counts n values; it is false when there are too many.
func (d *decoder) spend(at *yaml.Node, n int) bool {
	d.values += n
	if d.values > maxValues && !d.full {
		d.full = true
		d.report(at, codeTooLarge, "use fewer aliases", "the file holds more than %d values when its aliases are expanded", maxValues)
	}
	return d.values <= maxValues
}

// decode returns the value of a node, or nil when it could not be used. at is
// what to point to when the node itself says nothing (the key of an empty value).
func (d *decoder) decode(s *schema, n, at *yaml.Node, path string) *value {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || !d.spend(at, 1) {
		return nil
	}
	v := &value{schema: s, node: n, path: path, origin: d.origin}
	if v.origin == "" {
		v.origin = fmt.Sprintf("%s:%d", d.src.name, n.Line)
	}
	var ok bool
	switch {
	case s.alt != nil && n.Kind == yaml.ScalarNode && !isNull(n):
		return d.decode(s.alt, n, at, path)
	case s.kind == list:
		ok = d.list(v, n)
	case s.kind == mapping:
		ok = d.mapping(v, n)
	case s.kind == object:
		ok = d.object(v, n, at)
	default:
		ok = d.scalar(v, n, at)
	}
	if !ok {
		return nil
	}
	if s.check != nil {
		s.check(d, v)
	}
	return v
}

// isNull reports whether nothing was written, or a null.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func (d *decoder) wrongType(v *value, n *yaml.Node) bool {
	got := map[yaml.Kind]string{yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping", yaml.ScalarNode: "a single value"}[n.Kind]
	hint := ""
	switch {
	case v.schema.kind == list && n.Kind == yaml.ScalarNode:
		hint = "write it as a list, one `- item` per line"
	case v.schema.kind == text && n.Kind == yaml.MappingNode:
		hint = "quote the text if it contains \": \""
	case v.schema.kind == boolean && n.Kind == yaml.MappingNode && len(n.Content) > 0:
		hint = d.under(n.Content[0].Value, v.path)
	case v.schema.kind == mapping && n.Kind != yaml.MappingNode, v.schema.kind == object && n.Kind != yaml.MappingNode:
		hint = "write `key: value` lines below it"
		if len(v.schema.keys) > 0 {
			hint += "; keys: " + strings.Join(v.schema.keyNames(), ", ")
		}
	}
	d.report(n, codeType, hint, "%s must be %s, it is %s", v.name(), v.schema.want(), got)
	return false
}

// name is how messages call the value.
func (v *value) name() string {
	if v.path == "" {
		return "the file"
	}
	return v.path
}

func (d *decoder) list(v *value, n *yaml.Node) bool {
	if isNull(n) {
		return true
	}
	if n.Kind != yaml.SequenceNode {
		return d.wrongType(v, n)
	}
	for i, c := range n.Content {
		if d.values > maxValues {
			return false
		}
		if w := d.decode(v.schema.item, c, c, fmt.Sprintf("%s[%d]", v.path, i)); w != nil {
			v.items = append(v.items, w)
		}
	}
	return true
}

func (d *decoder) mapping(v *value, n *yaml.Node) bool {
	if isNull(n) {
		return true
	}
	if n.Kind != yaml.MappingNode {
		return d.wrongType(v, n)
	}
	for _, p := range d.pairs(n, 0) {
		if s := v.schema; s.names != nil && !s.names(p.name) {
			d.report(p.key, codeValue, "use "+s.namesRule, "%q cannot be a name in %s", p.name, v.path)
			continue
		}
		if w := d.decode(v.schema.item, p.val, p.key, v.path+"."+p.name); w != nil {
			v.fields = append(v.fields, field{name: p.name, key: p.key, value: w})
		}
	}
	return true
}

func (d *decoder) object(v *value, n, at *yaml.Node) bool {
	s := v.schema
	var pairs []pair
	if !isNull(n) {
		if n.Kind != yaml.MappingNode {
			return d.wrongType(v, n)
		}
		pairs = d.pairs(n, 0)
	}
	meant := map[string]bool{} // keys that are there, or that a slip stands for
	for _, p := range pairs {
		k, known := s.find(p.name)
		if !known {
			if v.path == "" && strings.HasPrefix(p.name, extension) {
				continue
			}
			hint, slip := d.suggest(s, v.path, p.name)
			meant[slip] = true
			if strings.HasPrefix(v.path, inSecrets) {
				// It may be a value that was taken for a mapping: it is not repeated.
				d.report(p.key, codeUnknown, hint, "unknown key%s", in(v.path))
				continue
			}
			d.report(p.key, codeUnknown, hint, "unknown key %q%s", p.name, in(v.path))
			continue
		}
		meant[k.name] = true
		if w := d.decode(k.schema, p.val, p.key, join(v.path, k.name)); w != nil {
			v.fields = append(v.fields, field{name: k.name, key: p.key, value: w})
		}
	}
	for _, k := range s.keys {
		switch {
		case meant[k.name], k.required && k.instead != "" && meant[k.instead]:
		case k.required:
			d.report(at, codeMissing, example(k), "%s is missing", join(v.path, k.name))
		case k.def != "":
			v.fields = append(v.fields, field{name: k.name, value: d.fallback(k, join(v.path, k.name))})
		}
	}
	return true
}

// fallback is the default of a key.
func (d *decoder) fallback(k key, path string) *value {
	f := &decoder{src: d.src, root: d.root, origin: "default"}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: k.def}
	return f.decode(k.schema, n, n, path)
}

// suggest says what an unknown key may have been meant to be.
func (d *decoder) suggest(s *schema, path, name string) (hint, meant string) {
	for _, k := range s.keys {
		if slices.Contains(k.slips, strings.ToLower(name)) {
			return fmt.Sprintf("did you mean %q?", k.name), k.name
		}
	}
	if near := diag.Nearest(name, s.keyNames()); near != "" {
		return fmt.Sprintf("did you mean %q?", near), near
	}
	if _, ok := d.root.find(name); ok && path != "" {
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

// under names the key of the file, other than path, that has one of that name; empty means there is none.
func (d *decoder) under(name, path string) string {
	for _, k := range d.root.keys {
		if _, ok := k.find(name); ok && k.name != path {
			return fmt.Sprintf("%q belongs under %q", name, k.name)
		}
	}
	return ""
}

// below is the key under one of the file's keys that is called so elsewhere, when
// there is only one.
func (d *decoder) below(name string) string {
	found := ""
	for _, k := range d.root.keys {
		for _, inner := range k.keys {
			if !slices.Contains(inner.slips, strings.ToLower(name)) {
				continue
			}
			if found != "" {
				return ""
			}
			found = fmt.Sprintf("%q under %q", inner.name, k.name)
		}
	}
	return found
}

func example(k key) string {
	switch {
	case len(k.examples) > 0:
		return fmt.Sprintf("add `%s: %s`", k.name, k.examples[0])
	case len(k.enum) > 0:
		return fmt.Sprintf("add `%s: %s`", k.name, k.enum[0])
	}
	return fmt.Sprintf("add `%s:` (%s)", k.name, k.doc)
}

func in(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

func join(path, name string) string {
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

// pairs returns the entries of a mapping: merge keys are replaced by what they
// bring, entries of the mapping itself win over merged ones, and a key that is
// given twice is a problem that names the first place.
func (d *decoder) pairs(n *yaml.Node, depth int) []pair {
	own := map[string]*yaml.Node{}
	var merged, all []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, val := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.AliasNode && k.Alias != nil {
			k = k.Alias
		}
		switch {
		case k.Kind != yaml.ScalarNode:
			d.report(n.Content[i], codeType, "", "a key must be a single word")
		case k.ShortTag() == "!!merge":
			merged = append(merged, d.merge(val, depth)...)
		case own[k.Value] != nil:
			d.report(k, codeDuplicate, "keep one of the two", "key %q is given twice; first at line %d", k.Value, own[k.Value].Line)
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

// merge returns what the value of a merge key brings.
func (d *decoder) merge(n *yaml.Node, depth int) []pair {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || !d.spend(n, 1) {
		return nil
	}
	switch {
	case depth >= maxMerge:
		d.report(n, codeTooLarge, "do not merge a mapping into itself", "merge keys are nested more than %d deep", maxMerge)
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
		d.report(n, codeType, "write `<<: *anchor`", "a merge key needs a mapping")
	}
	return nil
}
