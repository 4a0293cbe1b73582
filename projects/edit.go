package projects

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
)

// Edit changes the value of a key of a project file.
type Edit = yamlkeys.Edit

// Source finds a project as Load does, and returns its file as shown and its content, which may be invalid.
func Source(ref string, opts LoadOptions) (file string, content []byte, err error) {
	file, content, _, err = find(ref, opts)
	return file, content, err
}

// IsBuiltin reports whether a file, as Source returns it, is an example of the program.
func IsBuiltin(file string) bool { return strings.HasPrefix(file, builtin) }

// Change returns the content of a project file with the edits; an empty content is a new file. A mistake that the edits make is an
// *InvalidError. left are the mistakes that the content had before, and still has.
func Change(file string, content []byte, edits ...Edit) (changed []byte, left diag.List, err error) {
	tree, before := parse(file, content)
	if tree == nil && len(before) > 0 && before[0].Code != codeEmpty {
		return nil, nil, &InvalidError{File: file, Problems: before}
	}
	changed = content
	for _, e := range edits {
		if changed, err = e.Apply(changed, definition()); err != nil {
			return nil, nil, err
		}
	}
	_, after := parse(file, changed)
	var made diag.List
	same := func(a, b string) bool { return digits.ReplaceAllString(a, "") == digits.ReplaceAllString(b, "") } // lines have moved
	for _, p := range after {
		if slices.ContainsFunc(before, func(old diag.Problem) bool { return old.Code == p.Code && same(old.Message, p.Message) }) {
			left = append(left, p)
		} else {
			made = append(made, p)
		}
	}
	if len(made) > 0 {
		return nil, nil, &InvalidError{File: file, Problems: made}
	}
	return changed, left, nil
}

var digits = lazyregexp.New(`\d+`)

// Value returns a key's value, or its default: for JSON a text, boolean, number, list or mapping; and as a text, with an item of a list
// in each line. The error is yamlkeys.ErrNotSet if there is none.
func (p *Project) Value(key string) (plain any, text string, err error) {
	v, err := p.tree.At(key)
	if err == nil && v == nil {
		err = fmt.Errorf("%s: %w in %s", key, yamlkeys.ErrNotSet, p.File)
	}
	if err != nil {
		return nil, "", err
	}
	out := &shower{}
	switch v.Schema.Kind {
	case yamlkeys.Object:
		out.object(v, 0)
	case yamlkeys.Mapping:
		for _, f := range v.Fields {
			out.field(f.Name, f.Value, 0)
		}
	case yamlkeys.List:
		text = strings.Join(append(v.Strs(), ""), "\n")
	default:
		text = v.Text + "\n"
	}
	for _, l := range out.lines {
		text += l.text + "\n"
	}
	return v.Plain(true), text, nil
}

// Values returns all values that the file sets, and with defaults also the others.
func (p *Project) Values(defaults bool) any { return p.tree.Plain(defaults) }

// Keys returns the keys of project files that begin with a text. The keys of a mapping with names of the user end with a dot.
func Keys(begin string) (all []string) {
	var add func(s *schema, at string)
	add = func(s *schema, at string) {
		for _, k := range s.Keys {
			name := yamlkeys.Join(at, k.Name)
			if k.Kind == yamlkeys.Mapping {
				name += "."
			}
			if strings.HasPrefix(name, begin) {
				all = append(all, name)
			}
			add(k.Schema, name)
		}
	}
	add(definition(), "")
	return all
}
