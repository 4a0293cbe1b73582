package yamlkeys

import "regexp"

// Kind is the type of a value.
type Kind int

// The kinds of values.
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

// Schema defines a value: its type, what it is for, and what it may be.
type Schema struct {
	Kind Kind
	Doc  string
	// def is the default as it would be written in the file.
	Def string
	// enum lists the allowed texts.
	Enum []string
	// pattern restricts a text; rule says in words what it asks for.
	Pattern *regexp.Regexp
	Rule    string
	// max bounds a number or integer; 0 is no bound.
	Max float64
	// zero lets a number be 0.
	Zero bool
	// item is what a list or mapping holds, keys what an object holds.
	Item *Schema
	Keys []Key
	// ignore starts names of keys that an object does not read: a place for YAML anchors.
	Ignore string
	// names restricts the names of a mapping, namesRule in words.
	Names     func(string) bool
	NamesRule string
	// alt is the shorter form that may stand in for a list or object.
	Alt *Schema
	// allowEmpty lets a text be empty.
	AllowEmpty bool
	// check reports what the type alone cannot express.
	Check    func(*Decoder, *Value)
	Examples []string
}

// Key is a schema under a name.
type Key struct {
	Name     string
	Required bool
	// instead is another key that does as well as a required one.
	Instead string
	// slips are names used elsewhere for the same thing; they appear in hints only.
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
