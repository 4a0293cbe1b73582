package projects

import (
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"

	"gopkg.in/yaml.v3"
)

// Show prints the project as YAML. effective adds the defaults and the origin of each value. Secrets stay references.
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

// maxAlign is the last column to which origins are aligned.
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
	for _, k := range v.Schema.Keys {
		if f := v.Get(k.Name); f != nil {
			s.field(k.Name, f, depth)
		}
	}
}

func (s *shower) field(name string, v *value, depth int) {
	if v.Origin == "default" && !s.effective {
		return
	}
	name = quoted(name)
	kind := v.Schema.Kind
	switch {
	case kind != yamlkeys.Object && kind != yamlkeys.Mapping && kind != yamlkeys.List:
		s.scalar(name+": ", v, depth)
		return
	case len(v.Fields)+len(v.Items) > 0:
		s.add(depth, name+":", "")
	case kind == yamlkeys.List:
		s.add(depth, name+": []", v.Origin)
	default:
		s.add(depth, name+": {}", v.Origin)
	}
	if kind == yamlkeys.Object {
		s.object(v, depth+1)
		return
	}
	for _, f := range v.Fields {
		s.field(f.Name, f.Value, depth+1)
	}
	for _, i := range v.Items {
		s.scalar("- ", i, depth+1)
	}
}

// scalar prints a text; several lines as a block.
func (s *shower) scalar(lead string, v *value, depth int) {
	t := v.Text
	if v.Schema.Kind == yamlkeys.Text {
		t = quoted(t)
	}
	first, rest, more := strings.Cut(t, "\n")
	s.add(depth, lead+first, v.Origin)
	for more {
		var l string
		l, rest, more = strings.Cut(rest, "\n")
		s.lines = append(s.lines, shownLine{text: strings.TrimRight(strings.Repeat("  ", depth)+l, " ")})
	}
}

// quoted returns a text as YAML.
func quoted(t string) string {
	b, err := yaml.Marshal(t)
	if err != nil {
		return fmt.Sprintf("%q", t)
	}
	return strings.TrimSuffix(string(b), "\n")
}
