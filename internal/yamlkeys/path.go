package yamlkeys

import (
	"fmt"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// PathError is a key, or a value for one, that the schema does not have.
type PathError struct{ Message, Hint string }

func (e *PathError) Error() string { return e.Message }

func pathErrorf(hint, format string, a ...any) *PathError {
	return &PathError{fmt.Sprintf(format, a...), hint}
}

// step leads to an entry of a mapping, or with an index to an item of a list.
type step struct {
	name  string
	index int // -1 for an entry
	of    *Schema
	key   string // up to this step
}

// short reports whether the object's short form stands for this entry.
func (s step) short() bool {
	return s.of.Kind == Object && s.of.Alt != nil && s.of.Keys[0].Name == s.name
}

// steps resolves a key such as services.redis.image or lifecycle.setup[0], and returns the schema of its value.
func (s *Schema) steps(key string) (path []step, of *Schema, err error) {
	if key == "" {
		return nil, nil, pathErrorf("", "the key is empty")
	}
	d, at, rest := NewValues("", s), "", key
	for rest != "" {
		if strings.HasPrefix(rest, "[") && s.Kind == List {
			digits, more, _ := strings.Cut(rest[1:], "]")
			i, err := strconv.Atoi(digits)
			if err != nil || i < 0 {
				return nil, nil, pathErrorf("count items from 0, as in "+at+"[0]", "%s has no item %s", at, rest)
			}
			at += "[" + digits + "]"
			path, s, rest = append(path, step{"", i, s, at}), s.Item, strings.TrimPrefix(more, ".")
			continue
		}
		name, more, of := rest, "", s
		switch s.Kind {
		case Object:
			if i := strings.IndexAny(rest, ".["); i >= 0 {
				name, more = rest[:i], strings.TrimPrefix(rest[i:], ".")
			}
			k, ok := s.Find(name)
			if !ok {
				hint, _ := d.suggest(s, at, name)
				return nil, nil, pathErrorf(hint, "unknown key %q%s", name, in(at))
			}
			s = k.Schema
		case Mapping:
			name, more = s.splitName(rest)
			s = s.Item
		default:
			return nil, nil, pathErrorf("", "%s is %s: it has no key %q", at, s.want(), rest)
		}
		at = Join(at, name)
		path, rest = append(path, step{name, -1, of, at}), more
	}
	return path, s, nil
}

// splitName splits off the name of a mapping's entry, which may have dots, from the keys below it.
func (s *Schema) splitName(rest string) (name, more string) {
	if s.Item.Kind != Object {
		return rest, ""
	}
	for i, r := range rest {
		if r != '.' {
			continue
		}
		key, _, _ := strings.Cut(rest[i+1:], ".")
		key, _, _ = strings.Cut(key, "[")
		if _, ok := s.Item.Find(key); ok {
			return rest[:i], rest[i+1:]
		}
	}
	if s.Names != nil && s.Names(rest) {
		return rest, ""
	}
	name, more, _ = strings.Cut(rest, ".")
	return name, more
}

// At returns the value of a key; nil if the document does not have it.
func (v *Value) At(key string) (*Value, error) {
	path, _, err := v.Schema.steps(key)
	if err != nil {
		return nil, err
	}
	for _, s := range path {
		switch {
		case s.index < 0 && (v.Schema.Kind == Object || v.Schema.Kind == Mapping):
			v = v.Get(s.name)
		case s.index < 0 && s.short():
		case s.index >= 0 && s.index < len(v.Items):
			v = v.Items[s.index]
		default:
			v = nil
		}
		if v == nil {
			return nil, nil
		}
	}
	return v, nil
}

// Plain returns the value for an encoder of JSON: texts, booleans, numbers, lists and mappings; durations and sizes as written.
// Without defaults, values that are not in the document are left out.
func (v *Value) Plain(defaults bool) any {
	switch v.Schema.Kind {
	case Boolean:
		return v.On
	case Number, Integer:
		return v.Num
	case List:
		all := make([]any, 0, len(v.Items))
		for _, i := range v.Items {
			all = append(all, i.Plain(defaults))
		}
		return all
	case Mapping, Object:
		all := make(map[string]any, len(v.Fields))
		for _, f := range v.Fields {
			if defaults || f.Origin != "default" {
				all[f.Name] = f.Plain(defaults)
			}
		}
		return all
	default:
		return v.Text
	}
}

// node returns the YAML of a value that is given as words.
func (s *Schema) node(key string, words []string) (*yaml.Node, error) {
	one := len(words) == 1
	switch {
	case s.Alt != nil && one && s.Kind != Mapping:
		return s.Alt.node(key, words)
	case s.Kind == List:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, w := range words {
			item, err := s.Item.node(key, []string{w})
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		return n, nil
	case s.Kind == Mapping && (s.Item.Kind != Object || s.Item.Alt != nil):
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, w := range words {
			name, value, ok := strings.Cut(w, "=")
			if !ok {
				return nil, pathErrorf("", "%s: use NAME=VALUE instead of %q", key, w)
			}
			item, err := s.Item.node(key+"."+name, []string{value})
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, text(name), item)
		}
		return n, nil
	case s.Kind == Mapping:
		return nil, pathErrorf(fmt.Sprintf("for example %s.NAME.%s", key, s.Item.Keys[0].Name), "%s has entries with keys of their own", key)
	case s.Kind == Object:
		return nil, pathErrorf("set one of "+key+"."+strings.Join(s.keyNames(), ", "+key+"."), "%s has keys of its own", key)
	case !one:
		return nil, pathErrorf("quote a value with spaces", "%s is %s: it takes one value, not %d", key, s.want(), len(words))
	case s.Kind == Text:
		return text(words[0]), nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: words[0]}, nil
}

// text returns a text as YAML, quoted where it would be read as something else.
func text(t string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(t)
	return n
}
