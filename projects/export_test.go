package projects

import "strings"

// KeyPaths lists every key of the definition, without names the user chooses.
func KeyPaths() []string {
	var all []string
	var walk func(s *schema, at string)
	walk = func(s *schema, at string) {
		for _, k := range s.keys {
			path := join(at, k.name)
			all = append(all, path)
			walk(k.schema, path)
		}
		if s.item != nil {
			walk(s.item, at+".*")
		}
	}
	walk(definition(), "")
	return all
}

// Undocumented lists keys without a description.
func Undocumented() []string {
	var all []string
	var walk func(s *schema, at string)
	walk = func(s *schema, at string) {
		if s.doc == "" {
			all = append(all, at)
		}
		for _, k := range s.keys {
			walk(k.schema, join(at, k.name))
		}
		if s.item != nil {
			walk(s.item, at+"[]")
		}
	}
	walk(definition(), "")
	return all
}

// Written lists the keys that a project sets, in the form of KeyPaths.
func (p *Project) Written() map[string]bool {
	all := map[string]bool{}
	var walk func(v *value, at string)
	walk = func(v *value, at string) {
		if v.origin != "default" {
			all[strings.TrimPrefix(at, ".")] = true
		}
		for _, f := range v.fields {
			name := f.name
			if v.schema.kind == mapping {
				name = "*"
			}
			walk(f.value, at+"."+name)
		}
	}
	walk(p.tree, "")
	return all
}
