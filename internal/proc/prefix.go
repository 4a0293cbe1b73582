package proc

import "bytes"

// Prefix is a writer that keeps the first Max bytes and drops the rest, so that a full pipe does not block a child.
type Prefix struct {
	Max int
	Cut bool // bytes were dropped
	buf bytes.Buffer
}

func (b *Prefix) Write(p []byte) (int, error) {
	room := min(len(p), b.Max-b.buf.Len())
	b.Cut = b.Cut || room < len(p)
	b.buf.Write(p[:room])
	return len(p), nil
}

// Bytes returns the kept bytes.
func (b *Prefix) Bytes() []byte { return b.buf.Bytes() }

// String returns the kept bytes.
func (b *Prefix) String() string { return b.buf.String() }
