package projects

import "regexp"

// kind is the type of a value in a project file.
type kind int

const (
	text     kind = iota // any scalar, kept as written: `1.10` is "1.10", `yes` is "yes"
	boolean              // true or false
	number               // positive and finite
	integer              // positive
	duration             // 2s, 5m, or seconds; decoded to seconds
	size                 // 512m, 1.5g, or bytes; decoded to bytes
	list                 // of item
	mapping              // free names to item, in the order of the file
	object               // the keys of the table
)

// schema defines a value: its type, what it is for, and what it may be.
type schema struct {
	kind kind
	doc  string
	// def is the default as it would be written in the file.
	def string
	// enum lists the allowed texts.
	enum []string
	// pattern restricts a text; rule says in words what it asks for.
	pattern *regexp.Regexp
	rule    string
	// max bounds a number or integer; 0 is no bound.
	max float64
	// zero lets a number be 0.
	zero bool
	// item is what a list or mapping holds, keys what an object holds.
	item *schema
	keys []key
	// names restricts the names of a mapping, namesRule in words.
	names     func(string) bool
	namesRule string
	// alt is the shorter form that may stand in for a list or object.
	alt *schema
	// allowEmpty lets a text be empty.
	allowEmpty bool
	// check reports what the type alone cannot express.
	check    func(*decoder, *value)
	examples []string
}

// key is a schema under a name.
type key struct {
	name     string
	required bool
	// instead is another key that does as well as a required one.
	instead string
	// slips are names used elsewhere for the same thing; they appear in hints only.
	slips []string
	*schema
}

func (s *schema) find(name string) (key, bool) {
	for _, k := range s.keys {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

// keyNames lists the keys of an object in the order of the table.
func (s *schema) keyNames() []string {
	names := make([]string, 0, len(s.keys))
	for _, k := range s.keys {
		names = append(names, k.name)
	}
	return names
}

// want says in words which type is asked for.
func (s *schema) want() string {
	w := map[kind]string{
		text: "a text", boolean: "true or false", number: "a number", integer: "a whole number",
		duration: "a duration", size: "a size", list: "a list", mapping: "a mapping", object: "a mapping",
	}[s.kind]
	if s.alt != nil {
		w = s.alt.want() + " or " + w
	}
	return w
}
