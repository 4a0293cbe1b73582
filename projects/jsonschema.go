package projects

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// node is a JSON Schema. The fields are in the order they are printed in.
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

// properties keeps the order of the table, in which editors offer the keys.
type properties []property

type property struct {
	name string
	node *node
}

// MarshalJSON writes an object in order.
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

// JSONSchema returns the schema of the project file for editors, draft 2020-12.
// It accepts every valid project; what only the program can judge (names that
// clash, references that lead nowhere) is left to `project validate`.
func JSONSchema() ([]byte, error) {
	n := schemaNode(definition())
	n.Draft, n.Title = "https://json-schema.org/draft/2020-12/schema", "sandbox-agent project"
	n.PatternProperties = map[string]*node{"^" + extension: {Description: "Ignored; a place for YAML anchors."}}
	b, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write JSON schema: %w", err)
	}
	return append(b, '\n'), nil
}

func schemaNode(s *schema) *node {
	n := &node{Description: s.doc}
	above := new(float64)
	switch s.kind {
	case text:
		n.textNode(s)
	case boolean:
		n.Type = "boolean"
	case number, integer:
		n.Type, n.ExclusiveMinimum = map[kind]string{number: "number", integer: "integer"}[s.kind], above
		n.Maximum = s.max
		if s.zero {
			n.ExclusiveMinimum, n.Minimum = nil, above
		}
	case duration, size:
		// A number or a text with a unit: bounds hold for the number alone.
		n.Type, n.ExclusiveMinimum = []string{"number", "string"}, above
		n.Pattern = map[kind]string{duration: `^[0-9.]+([a-zµ]+[0-9.]*)*$`, size: `^[0-9.]+([kKmMgGtT]?[iI]?[bB]?)$`}[s.kind]
	case list:
		n.Type, n.Items = nullable("array", s), schemaNode(s.item)
	case mapping:
		n.Type, n.Additional = nullable("object", s), schemaNode(s.item)
	case object:
		n.objectNode(s)
	}
	for _, e := range s.examples {
		n.Examples = append(n.Examples, literal(s, e))
	}
	if s.def != "" {
		n.Default = literal(s, s.def)
	}
	if s.alt == nil {
		return n
	}
	either := &node{Description: n.Description, Default: n.Default, AnyOf: []*node{schemaNode(s.alt), n}}
	n.Description, n.Default, either.AnyOf[0].Description, either.AnyOf[0].Default = "", nil, "", nil
	return either
}

// nullable lists and mappings may be left empty, as when all below is commented out.
func nullable(t string, s *schema) any {
	if s.alt != nil {
		return t
	}
	return []string{t, "null"}
}

// textNode: YAML hands `1.10` and `yes` to an editor as what they look like,
// while the program keeps them as they are written.
func (n *node) textNode(s *schema) {
	switch {
	case len(s.enum) > 0:
		n.Enum = s.enum
	case s.allowEmpty:
		n.Type = []string{"string", "number", "boolean", "null"}
	default:
		n.Type, n.MinLength = []string{"string", "number", "boolean"}, 1
	}
	if s.pattern != nil {
		n.Pattern = s.pattern.String()
	}
}

func (n *node) objectNode(s *schema) {
	n.Type, n.Additional = "object", false
	props := properties{}
	for _, k := range s.keys {
		switch {
		case k.required && k.instead != "":
			n.AnyOf = []*node{{Required: []string{k.name}}, {Required: []string{k.instead}}}
		case k.required:
			n.Required = append(n.Required, k.name)
		}
		props = append(props, property{k.name, schemaNode(k.schema)})
	}
	n.Properties = &props
	if len(n.Required) == 0 && n.AnyOf == nil {
		n.Type = []string{"object", "null"}
	}
}

// literal is a default or example as JSON.
func literal(s *schema, t string) any {
	switch s.kind {
	case boolean:
		return t == "true"
	case number, integer:
		if f, err := strconv.ParseFloat(t, 64); err == nil {
			return f
		}
	}
	return t
}
