package yamlkeys

import (
	"cmp"
	"fmt"
	"strings"
)

// Markdown returns a table of all keys below an object with type, default and meaning.
func (s *Schema) Markdown() string {
	var b strings.Builder
	b.WriteString("| key | is | default | |\n| --- | --- | --- | --- |\n")
	markdownKeys(&b, "", s)
	return b.String()
}

func markdownKeys(b *strings.Builder, path string, s *Schema) {
	for _, k := range s.Keys {
		name := k.Name
		if path != "" {
			name = path + "." + k.Name
		}
		is := typeText(k.Schema)
		if k.Required {
			is += ", required"
			if k.Instead != "" {
				is += " (or " + k.Instead + ")"
			}
		}
		row(b, name, is, k.Schema)
		markdownBelow(b, name, k.Schema)
	}
}

func markdownBelow(b *strings.Builder, name string, s *Schema) {
	switch {
	case s.Item != nil && s.Kind == Mapping:
		name += ".*"
	case s.Item != nil:
		name += "[]"
	}
	below := s
	if s.Item != nil {
		below = s.Item
		if len(below.Keys) == 0 && below.Item == nil {
			return // what it is stands in the row above
		}
	}
	if below.Item != nil && below != s {
		markdownBelow(b, name, below)
		return
	}
	markdownKeys(b, name, below)
}

func typeText(s *Schema) string {
	is := map[Kind]string{
		Text: "text", Size: "size", Integer: "whole number", Number: "number", Boolean: "true or false",
		Duration: "duration", List: "list", Mapping: "mapping", Object: "mapping",
	}[s.Kind]
	is = cmp.Or(is, "text")
	switch {
	case len(s.Enum) > 0:
		is = "`" + strings.Join(s.Enum, "`, `") + "`"
	case s.Item != nil && len(s.Item.Keys) == 0 && s.Item.Item == nil:
		is += " of " + typeText(s.Item)
	}
	if s.Alt != nil {
		is += ", or " + typeText(s.Alt)
	}
	return is
}

func row(b *strings.Builder, name, is string, s *Schema) {
	def := ""
	if s.Def != "" {
		def = "`" + s.Def + "`"
	}
	doc := s.Doc
	if s.Max > 0 {
		doc += fmt.Sprintf(" At most %g.", s.Max)
	}
	if s.Item != nil && s.Item.Doc != "" && len(s.Item.Keys) == 0 {
		doc += " Each: " + s.Item.Doc
	}
	if len(s.Examples) > 0 {
		doc += " Example: `" + s.Examples[0] + "`."
	}
	cell := strings.NewReplacer("|", "\\|", "\n", " ").Replace
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", cell(name), cell(is), cell(def), cell(doc))
}
