package projects

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Show prints the project as YAML. effective adds the defaults, and behind each
// value where it comes from. Secrets are references and shown as such.
func (p *Project) Show(effective bool) string {
	out := &shower{effective: effective}
	out.object(p.tree, 0)
	width := 0
	for _, l := range out.lines {
		if l.origin != "" {
			width = max(width, min(len(l.text), maxAlign))
		}
	}
	var b strings.Builder
	for _, l := range out.lines {
		if l.origin == "" {
			b.WriteString(l.text + "\n")
		} else {
			fmt.Fprintf(&b, "%-*s  # %s\n", width, l.text, l.origin)
		}
	}
	return b.String()
}

// maxAlign is the column that origins are aligned to at most.
const maxAlign = 56

type shower struct {
	effective bool
	lines     []shownLine
}

type shownLine struct{ text, origin string }

func (s *shower) add(depth int, t, origin string) {
	if !s.effective {
		origin = ""
	}
	s.lines = append(s.lines, shownLine{strings.Repeat("  ", depth) + t, origin})
}

// object prints known keys in the order of the table.
func (s *shower) object(v *value, depth int) {
	for _, k := range v.schema.keys {
		if f := v.get(k.name); f != nil {
			s.field(k.name, f, depth)
		}
	}
}

func (s *shower) field(name string, v *value, depth int) {
	if v.origin == "default" && !s.effective {
		return
	}
	name = quoted(name)
	switch v.schema.kind {
	case object:
		if len(v.fields) == 0 {
			s.add(depth, name+": {}", v.origin)
			return
		}
		s.add(depth, name+":", "")
		s.object(v, depth+1)
	case mapping:
		if len(v.fields) == 0 {
			s.add(depth, name+": {}", v.origin)
			return
		}
		s.add(depth, name+":", "")
		for _, f := range v.fields {
			s.field(f.name, f.value, depth+1)
		}
	case list:
		if len(v.items) == 0 {
			s.add(depth, name+": []", v.origin)
			return
		}
		s.add(depth, name+":", "")
		for _, i := range v.items {
			s.scalar("- ", i, depth+1)
		}
	default:
		s.scalar(name+": ", v, depth)
	}
}

// scalar prints a text; one of several lines as a block.
func (s *shower) scalar(lead string, v *value, depth int) {
	t := v.text
	if v.schema.kind == text {
		t = quoted(t)
	}
	first, rest, more := strings.Cut(t, "\n")
	s.add(depth, lead+first, v.origin)
	for more {
		var l string
		l, rest, more = strings.Cut(rest, "\n")
		s.lines = append(s.lines, shownLine{text: strings.TrimRight(strings.Repeat("  ", depth)+l, " ")})
	}
}

// quoted is a text as YAML that reads back as the same text.
func quoted(t string) string {
	b, err := yaml.Marshal(t)
	if err != nil {
		return fmt.Sprintf("%q", t)
	}
	return strings.TrimSuffix(string(b), "\n")
}
