package yamlkeys

import (
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// Kind is the type of a value.
type Kind int

// Kinds of values.
const (
	Text     Kind = iota // any scalar, kept as written: `1.10` is "1.10", `yes` is "yes"
	Boolean              // true or false
	Number               // positive and finite
	Integer              // positive
	Duration             // 2s, 5m, or seconds; decoded to seconds
	Size                 // 512m, 1.5g, or bytes; decoded to bytes
	List                 // of item
	Mapping              // free names to item, in the order of the file
	Object               // the keys of the table
)

// Schema defines a value: type, description and constraints.
type Schema struct {
	Kind Kind
	Doc  string
	// Def is the default as a file would have it.
	Def string
	// Enum lists the allowed texts.
	Enum []string
	// Pattern restricts a text; Rule describes the pattern.
	Pattern *lazyregexp.Pattern
	Rule    string
	// Max bounds a number or integer; 0 is no bound.
	Max float64
	// Zero allows the number 0.
	Zero bool
	// Item is the schema of a list's or mapping's values, Keys are an object's.
	Item *Schema
	Keys []Key
	// Ignore is the prefix of keys that an object ignores, for YAML anchors.
	Ignore string
	// Names restricts the names of a mapping; NamesRule describes the restriction.
	Names     func(string) bool
	NamesRule string
	// Alt is the shorter form of a list or object.
	Alt *Schema
	// AllowEmpty allows an empty text.
	AllowEmpty bool
	// Check reports what the type alone cannot express.
	Check    func(*Decoder, *Value)
	Examples []string
}

// Key is a schema under a name.
type Key struct {
	Name     string
	Required bool
	// Instead is another key that may replace a required one.
	Instead string
	// Slips are names of the same key elsewhere; they appear in hints only.
	Slips []string
	*Schema
}

// Find returns the key of an object by name.
func (s *Schema) Find(name string) (Key, bool) {
	for _, k := range s.Keys {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

func (s *Schema) keyNames() []string {
	names := make([]string, 0, len(s.Keys))
	for _, k := range s.Keys {
		names = append(names, k.Name)
	}
	return names
}

func (s *Schema) want() string {
	w := map[Kind]string{
		Text: "a text", Boolean: "true or false", Number: "a number", Integer: "a whole number",
		Duration: "a duration", Size: "a size", List: "a list", Mapping: "a mapping", Object: "a mapping",
	}[s.Kind]
	if s.Alt != nil {
		w = s.Alt.want() + " or " + w
	}
	return w
}
