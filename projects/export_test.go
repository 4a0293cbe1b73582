package projects

import "github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"

import "strings"

// KeyPaths lists every key of the definition, without names the user chooses.
func KeyPaths() []string {
	var all []string
	var walk func(s *schema, at string)
	walk = func(s *schema, at string) {
		for _, k := range s.Keys {
			path := yamlkeys.Join(at, k.Name)
			all = append(all, path)
			walk(k.Schema, path)
		}
		if s.Item != nil {
			walk(s.Item, at+".*")
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
		if s.Doc == "" {
			all = append(all, at)
		}
		for _, k := range s.Keys {
			walk(k.Schema, yamlkeys.Join(at, k.Name))
		}
		if s.Item != nil {
			walk(s.Item, at+"[]")
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
		if v.Origin != "default" {
			all[strings.TrimPrefix(at, ".")] = true
		}
		for _, f := range v.Fields {
			name := f.Name
			if v.Schema.Kind == yamlkeys.Mapping {
				name = "*"
			}
			walk(f.Value, at+"."+name)
		}
	}
	walk(p.tree, "")
	return all
}
