package projects

import (
	"gopkg.in/yaml.v3"
)

// value is a decoded value with its origin.
type value struct {
	schema *schema
	// node is where it stands; it has no line when it is in no file.
	node *yaml.Node
	// path is its place in the document, such as services.redis.image.
	path string
	// origin says where it comes from: "default", a file and line, a flag.
	origin string

	text   string  // of a text, and as written of every other scalar
	num    float64 // of a number, integer, duration (seconds) or size (bytes)
	on     bool    // of a boolean
	items  []*value
	fields []field
}

// field is an entry of an object or mapping.
type field struct {
	name string
	key  *yaml.Node
	*value
}

// get returns the field with this name, or nil.
func (v *value) get(name string) *value {
	if v == nil {
		return nil
	}
	for _, f := range v.fields {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// set replaces or adds a field.
func (v *value) set(name string, w *value) {
	for i := range v.fields {
		if v.fields[i].name == name {
			v.fields[i].value = w
			return
		}
	}
	v.fields = append(v.fields, field{name: name, value: w})
}

func (v *value) str() string {
	if v == nil {
		return ""
	}
	return v.text
}

func (v *value) number() float64 {
	if v == nil {
		return 0
	}
	return v.num
}

func (v *value) bool() bool { return v != nil && v.on }

// strs is the texts of a list.
func (v *value) strs() []string {
	if v == nil || len(v.items) == 0 {
		return nil
	}
	s := make([]string, 0, len(v.items))
	for _, i := range v.items {
		s = append(s, i.text)
	}
	return s
}

// texts is the entries of a mapping of texts.
func (v *value) texts() map[string]string {
	if v == nil || len(v.fields) == 0 {
		return nil
	}
	m := make(map[string]string, len(v.fields))
	for _, f := range v.fields {
		m[f.name] = f.text
	}
	return m
}

// equal reports whether two values of the same schema say the same. The order
// of a mapping counts only when ordered is set.
func (v *value) equal(w *value, ordered bool) bool {
	if v.text != w.text || len(v.items) != len(w.items) || len(v.fields) != len(w.fields) {
		return false
	}
	for i := range v.items {
		if !v.items[i].equal(w.items[i], ordered) {
			return false
		}
	}
	for i, f := range v.fields {
		other := w.get(f.name)
		if other == nil || ordered && w.fields[i].name != f.name || !f.equal(other, ordered) {
			return false
		}
	}
	return true
}
