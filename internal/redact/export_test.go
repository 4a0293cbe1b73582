package redact

// New returns a set of values that have one name.
func New(values ...string) *Set {
	b := newBuilder()
	for _, v := range values {
		b.add("x", v)
	}
	return b.set()
}
