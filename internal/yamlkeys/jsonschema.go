package yamlkeys

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// node is a JSON Schema, with fields in the printed order.
type node struct {
	Draft             string           `json:"$schema,omitempty"`
	Title             string           `json:"title,omitempty"`
	Description       string           `json:"description,omitempty"`
	Type              any              `json:"type,omitempty"`
	Enum              []string         `json:"enum,omitempty"`
	Pattern           string           `json:"pattern,omitempty"`
	Default           any              `json:"default,omitempty"`
	Examples          []any            `json:"examples,omitempty"`
	MinLength         int              `json:"minLength,omitempty"`
	ExclusiveMinimum  *float64         `json:"exclusiveMinimum,omitempty"`
	Minimum           *float64         `json:"minimum,omitempty"`
	Maximum           float64          `json:"maximum,omitempty"`
	AnyOf             []*node          `json:"anyOf,omitempty"`
	Items             *node            `json:"items,omitempty"`
	Properties        *properties      `json:"properties,omitempty"`
	PatternProperties map[string]*node `json:"patternProperties,omitempty"`
	Required          []string         `json:"required,omitempty"`
	Additional        any              `json:"additionalProperties,omitempty"`
}

// properties keeps the table's order, in which editors offer the keys.
type properties []property

type property struct {
	name string
	node *node
}

// MarshalJSON implements json.Marshaler, in order.
func (p properties) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, f := range p {
		if i > 0 {
			b = append(b, ',')
		}
		v, err := json.Marshal(f.node)
		if err != nil {
			return nil, err
		}
		b = fmt.Appendf(b, "%q:%s", f.name, v)
	}
	return append(b, '}'), nil
}

// JSONSchema returns the JSON Schema of a file, draft 2020-12.
func (s *Schema) JSONSchema(title string) ([]byte, error) {
	n := schemaNode(s)
	n.Draft, n.Title = "https://json-schema.org/draft/2020-12/schema", title
	if s.Ignore != "" {
		n.PatternProperties = map[string]*node{"^" + s.Ignore: {Description: "Ignored; a place for YAML anchors."}}
	}
	b, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write JSON schema: %w", err)
	}
	return append(b, '\n'), nil
}

func schemaNode(s *Schema) *node {
	n := &node{Description: s.Doc}
	above := new(float64)
	switch s.Kind {
	case Text:
		n.textNode(s)
	case Boolean:
		n.Type = "boolean"
	case Number, Integer:
		n.Type, n.ExclusiveMinimum = map[Kind]string{Number: "number", Integer: "integer"}[s.Kind], above
		n.Maximum = s.Max
		if s.Zero {
			n.ExclusiveMinimum, n.Minimum = nil, above
		}
	case Duration, Size:
		// A number or a text with a unit: bounds apply to the number alone.
		n.Type, n.ExclusiveMinimum = []string{"number", "string"}, above
		n.Pattern = map[Kind]string{Duration: `^[0-9.]+([a-zµ]+[0-9.]*)*$`, Size: `^[0-9.]+([kKmMgGtT]?[iI]?[bB]?)$`}[s.Kind]
	case List:
		n.Type, n.Items = nullable("array", s), schemaNode(s.Item)
	case Mapping:
		n.Type, n.Additional = nullable("object", s), schemaNode(s.Item)
	case Object:
		n.objectNode(s)
	}
	for _, e := range s.Examples {
		n.Examples = append(n.Examples, literal(s, e))
	}
	if s.Def != "" {
		n.Default = literal(s, s.Def)
	}
	if s.Alt == nil {
		return n
	}
	either := &node{Description: n.Description, Default: n.Default, AnyOf: []*node{schemaNode(s.Alt), n}}
	n.Description, n.Default, either.AnyOf[0].Description, either.AnyOf[0].Default = "", nil, "", nil
	return either
}

// nullable lists and mappings may be empty, for example if all entries are comments.
func nullable(t string, s *Schema) any {
	if s.Alt != nil {
		return t
	}
	return []string{t, "null"}
}

// textNode allows `1.10` and `yes`, which editors read as other types, where the program keeps the text.
func (n *node) textNode(s *Schema) {
	switch {
	case len(s.Enum) > 0:
		n.Enum = s.Enum
	case s.AllowEmpty:
		n.Type = []string{"string", "number", "boolean", "null"}
	default:
		n.Type, n.MinLength = []string{"string", "number", "boolean"}, 1
	}
	if s.Pattern != nil {
		n.Pattern = s.Pattern.String()
	}
}

func (n *node) objectNode(s *Schema) {
	n.Type, n.Additional = "object", false
	props := properties{}
	for _, k := range s.Keys {
		switch {
		case k.Required && k.Instead != "":
			n.AnyOf = []*node{{Required: []string{k.Name}}, {Required: []string{k.Instead}}}
		case k.Required:
			n.Required = append(n.Required, k.Name)
		}
		props = append(props, property{k.Name, schemaNode(k.Schema)})
	}
	n.Properties = &props
	if len(n.Required) == 0 && n.AnyOf == nil {
		n.Type = []string{"object", "null"}
	}
}

func literal(s *Schema, t string) any {
	switch s.Kind {
	case Boolean:
		return t == "true"
	case Number, Integer:
		if f, err := strconv.ParseFloat(t, 64); err == nil {
			return f
		}
	}
	return t
}
