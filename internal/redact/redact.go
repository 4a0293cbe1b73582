// Package redact takes secret values out of text: out of streams, however the value is split over writes, and out of
// strings. It knows the values, not what secrets look like, so that it neither guesses nor mutilates ordinary output.
//
// A value is also found in the forms in which programs usually print it: JSON and URL escaped, in base64 (standard
// and URL alphabet, at each of the three positions it can have within an encoded text) and in hexadecimal, and each
// of these as a part of a ref that workorder.KeptRef names. Of a value of several lines, such as a private key, each
// long line is a secret of its own. Not found are unlisted forms: encoded twice, compressed, reversed, base64 broken
// into lines. Redaction protects from accidents, not from an agent that means to leak.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// MinValue is the shortest value that is redacted, in bytes. A shorter one
	// ("true", "1234") occurs everywhere by chance: its marks would wreck the
	// output and, by their places, tell the value.
	MinValue = 6
	// minLine is the shortest line of a multi-line value that is a secret by
	// itself, in bytes. Below it are the lines that any text may have.
	minLine = 16
)

// Set holds the values to take out. It is immutable and safe for concurrent
// use; nil is an empty set.
type Set struct {
	m       *machine // nil means nothing to look for
	marks   [][]byte
	ignored []string
}

// Named returns a set of values by name; each is replaced by [redacted:NAME].
func Named(values map[string]string) *Set {
	b := newBuilder()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b.add(name, values[name])
	}
	return b.set()
}

// Whole returns a set that finds the values as a whole. Named also takes a line of a value for the value: that hides
// too much rather than too little, and says nothing about where a line that other texts have as well comes from.
func Whole(values map[string]string) *Set {
	b := newBuilder()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b.whole(name, strings.TrimSpace(values[name]))
	}
	return b.set()
}

// Ignored lists the names of the values that are not looked for because they
// are shorter than MinValue; empty values are not listed.
func (s *Set) Ignored() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.ignored)
}

// String returns text without the values.
func (s *Set) String(text string) string {
	if s == nil || s.m == nil || len(text) < MinValue {
		return text
	}
	var out bytes.Buffer
	w := Writer{set: s, out: &out}
	if w.clean(text) {
		return text
	}
	_, _ = w.Write([]byte(text)) // a bytes.Buffer does not fail
	_ = w.Close()
	return out.String()
}

type builder struct {
	t       trie
	marks   [][]byte
	ignored []string
}

func newBuilder() *builder { return &builder{t: newTrie()} }

func (b *builder) add(name, value string) {
	value = strings.TrimSpace(value) // the line end of a secret's file is no part of it
	id, ok := b.whole(name, value)
	if !ok || !strings.ContainsRune(value, '\n') {
		return
	}
	for line := range strings.Lines(value) {
		line = strings.TrimSpace(line)
		if len(line) >= minLine && !strings.HasPrefix(line, "-----") {
			for _, f := range forms(line) {
				b.t.insert(f, id)
			}
		}
	}
}

// whole adds a value, unless it is too short.
func (b *builder) whole(name, value string) (id int32, ok bool) {
	if len(value) < MinValue {
		if value != "" {
			b.ignored = append(b.ignored, name)
		}
		return 0, false
	}
	id = int32(len(b.marks))
	b.marks = append(b.marks, []byte("[redacted:"+name+"]"))
	for _, f := range forms(value) {
		b.t.insert(f, id)
	}
	return id, true
}

func (b *builder) set() *Set {
	s := &Set{marks: b.marks, ignored: b.ignored}
	if len(b.marks) > 0 {
		s.m = b.t.compile()
	}
	return s
}

// forms lists the ways in which v may be printed, v itself first.
func forms(v string) []string {
	out := []string{v, strings.ReplaceAll(v, "\n", "\r\n")}
	for _, html := range []bool{false, true} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(html)
		if enc.Encode(v) == nil {
			q := strings.TrimSuffix(b.String(), "\n")
			out = append(out, q[1:len(q)-1])
		}
	}
	out = append(out, strings.ReplaceAll(out[len(out)-1], "/", `\/`))
	for _, u := range []string{url.QueryEscape(v), url.PathEscape(v), strings.ReplaceAll(url.QueryEscape(v), "+", "%20")} {
		out = append(out, u, lowerEscapes(u))
	}
	out = append(out, hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v))))
	for before := range 3 {
		out = append(out, base64At(base64.RawStdEncoding, v, before), base64At(base64.RawURLEncoding, v, before))
	}
	for _, f := range out {
		out = append(out, workorder.EscapeRef(f))
	}
	slices.Sort(out[1:])
	return slices.Compact(out)
}

// base64At returns the characters that v makes in the encoding of a longer text
// when `before` bytes (modulo 3) precede it. The characters at the ends that also depend
// on the neighbours are left out: they carry at most four bits of v each.
func base64At(enc *base64.Encoding, v string, before int) string {
	n := before + len(v)
	s := enc.EncodeToString(append(make([]byte, before), v...))
	return s[(before*8+5)/6 : n*8/6]
}

// lowerEscapes writes %2F as %2f: both are in use.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], bytes.ToLower(b[i+1:i+3]))
			i += 2
		}
	}
	return string(b)
}
