package projects

import (
	"fmt"
	"strings"
)

// Markdown returns the reference of the project file: every key with its type, default and meaning.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Keys of a project file\n\nThis page is made of the table that the program checks files by: `sandbox-agent " +
		"project schema --markdown` prints it.\n" +
		"[How to write a project file](project-file.md) has an example with comments. `*` stands for a name that you choose, `[]` for " +
		"each entry of a list.\n" +
		"\n| key | is | default | |\n| --- | --- | --- | --- |\n")
	markdownKeys(&b, "", definition())
	return b.String()
}

// markdownKeys writes a row for each key below s.
func markdownKeys(b *strings.Builder, path string, s *schema) {
	for _, k := range s.keys {
		name := k.name
		if path != "" {
			name = path + "." + k.name
		}
		is := typeText(k.schema)
		if k.required {
			is += ", required"
			if k.instead != "" {
				is += " (or " + k.instead + ")"
			}
		}
		row(b, name, is, k.schema)
		markdownBelow(b, name, k.schema)
	}
}

func markdownBelow(b *strings.Builder, name string, s *schema) {
	switch {
	case s.item != nil && s.kind == mapping:
		name += ".*"
	case s.item != nil:
		name += "[]"
	}
	below := s
	if s.item != nil {
		below = s.item
		if len(below.keys) == 0 && below.item == nil {
			return // what it is stands in the row above
		}
	}
	if below.item != nil && below != s {
		markdownBelow(b, name, below)
		return
	}
	markdownKeys(b, name, below)
}

// typeText says what a value looks like.
func typeText(s *schema) string {
	is := map[kind]string{
		text: "text", size: "size", integer: "whole number", number: "number", boolean: "true or false",
		duration: "duration", list: "list", mapping: "mapping", object: "mapping",
	}[s.kind]
	if is == "" {
		is = "text"
	}
	switch {
	case len(s.enum) > 0:
		is = "`" + strings.Join(s.enum, "`, `") + "`"
	case s.item != nil && len(s.item.keys) == 0 && s.item.item == nil:
		is += " of " + typeText(s.item)
	}
	if s.alt != nil {
		is += ", or " + typeText(s.alt)
	}
	return is
}

func row(b *strings.Builder, name, is string, s *schema) {
	def := ""
	if s.def != "" {
		def = "`" + s.def + "`"
	}
	doc := s.doc
	if s.max > 0 {
		doc += fmt.Sprintf(" At most %g.", s.max)
	}
	if s.item != nil && s.item.doc != "" && len(s.item.keys) == 0 {
		doc += " Each: " + s.item.doc
	}
	if len(s.examples) > 0 {
		doc += " Example: `" + s.examples[0] + "`."
	}
	cell := strings.NewReplacer("|", "\\|", "\n", " ").Replace
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", cell(name), cell(is), cell(def), cell(doc))
}
