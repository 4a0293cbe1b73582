package yamlkeys

import (
	"gopkg.in/yaml.v3"
)

// Value is a decoded value with its origin.
type Value struct {
	Schema *Schema
	// Node is its position; it has no line if it is in no file.
	Node *yaml.Node
	// Path is its path in the document, such as services.redis.image.
	Path string
	// Origin is "default", a file and line, or a flag.
	Origin string

	Text   string  // of a text, and as written of every other scalar
	Num    float64 // of a number, integer, duration (seconds) or size (bytes)
	On     bool    // of a boolean
	Items  []*Value
	Fields []Field
}

// Field is an entry of an object or mapping.
type Field struct {
	Name string
	Key  *yaml.Node
	*Value
}

// Get returns the field with this name, or nil.
func (v *Value) Get(name string) *Value {
	if v == nil {
		return nil
	}
	for _, f := range v.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Set replaces or adds a field.
func (v *Value) Set(name string, w *Value) {
	for i := range v.Fields {
		if v.Fields[i].Name == name {
			v.Fields[i].Value = w
			return
		}
	}
	v.Fields = append(v.Fields, Field{Name: name, Value: w})
}

// Str returns the text; "" of nil.
func (v *Value) Str() string {
	if v == nil {
		return ""
	}
	return v.Text
}

// Number returns the number; 0 of nil.
func (v *Value) Number() float64 {
	if v == nil {
		return 0
	}
	return v.Num
}

// Bool returns the boolean; false of nil.
func (v *Value) Bool() bool { return v != nil && v.On }

// Strs returns the texts of a list.
func (v *Value) Strs() []string {
	if v == nil || len(v.Items) == 0 {
		return nil
	}
	s := make([]string, 0, len(v.Items))
	for _, i := range v.Items {
		s = append(s, i.Text)
	}
	return s
}

// Texts returns the entries of a mapping of texts.
func (v *Value) Texts() map[string]string {
	if v == nil || len(v.Fields) == 0 {
		return nil
	}
	m := make(map[string]string, len(v.Fields))
	for _, f := range v.Fields {
		m[f.Name] = f.Text
	}
	return m
}

// Equal reports whether two values of the same schema are equal. The order of a mapping counts only if ordered is set.
func (v *Value) Equal(w *Value, ordered bool) bool {
	if v.Text != w.Text || len(v.Items) != len(w.Items) || len(v.Fields) != len(w.Fields) {
		return false
	}
	for i := range v.Items {
		if !v.Items[i].Equal(w.Items[i], ordered) {
			return false
		}
	}
	for i, f := range v.Fields {
		other := w.Get(f.Name)
		if other == nil || ordered && w.Fields[i].Name != f.Name || !f.Equal(other, ordered) {
			return false
		}
	}
	return true
}

// Entries returns the fields of an object or mapping.
func (v *Value) Entries() []Field {
	if v == nil {
		return nil
	}
	return v.Fields
}

// Elements returns the values of a list.
func (v *Value) Elements() []*Value {
	if v == nil {
		return nil
	}
	return v.Items
}
