package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

const (
	// maxMembers bounds the fields of a request: APIs know some fifty.
	maxMembers = 500
	// maxText bounds the name of a field and any text that the gateway examines, in bytes.
	maxText = 4 << 10
)

// member is one field of a JSON object, with the position of its value.
type member struct {
	name     string
	from, to int
}

// body is the JSON object of a request, byte for byte. Prompt caches depend on its
// bytes, and it is large: no part of it is copied.
type body struct {
	raw     []byte
	members []member
	end     int // position of the closing brace
}

var errTwice = errors.New("a field is given twice")

// parseBody reads an object. It refuses duplicate fields: gateway and server
// could each use a different one.
func parseBody(raw []byte) (body, error) {
	if !json.Valid(raw) {
		return body{}, fmt.Errorf("it is not JSON: %w", json.Unmarshal(raw, &struct{}{}))
	}
	b, i := body{raw: raw}, space(raw, 0)
	if raw[i] != '{' {
		return body{}, errors.New("it is not a JSON object")
	}
	for i = space(raw, i+1); raw[i] != '}'; {
		if raw[i] == ',' {
			i = space(raw, i+1)
		}
		at := i
		i = endOfString(raw, i)
		var name string
		if err := json.Unmarshal(raw[at:min(i, at+maxText)], &name); err != nil {
			return body{}, fmt.Errorf("a field's name has more than %d bytes", maxText)
		}
		if _, ok := b.find(name); ok {
			return body{}, fmt.Errorf("%w: %.40q", errTwice, name)
		}
		i = space(raw, i) + 1 // the colon
		m := member{name: name, from: space(raw, i)}
		m.to = endOfValue(raw, m.from)
		i = space(raw, m.to)
		if b.members = append(b.members, m); len(b.members) > maxMembers {
			return body{}, errors.New("it has too many fields")
		}
	}
	b.end = i
	return b, nil
}

// space, endOfString and endOfValue step over valid JSON.

func space(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r' {
		i++
	}
	return i
}

func endOfString(raw []byte, i int) int {
	for i++; raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func endOfValue(raw []byte, i int) int {
	switch raw[i] {
	case '"':
		return endOfString(raw, i)
	case '{', '[':
	default:
		return i + bytes.IndexAny(raw[i:], ",}] \t\r\n")
	}
	for depth := 0; ; i++ {
		switch raw[i] {
		case '"':
			i = endOfString(raw, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// find finds a field. It ignores case, because some servers do.
func (b body) find(name string) (member, bool) {
	for _, m := range b.members {
		if strings.EqualFold(m.name, name) {
			return m, true
		}
	}
	return member{}, false
}

// get returns a field's value; nil if there is none.
func (b body) get(name string) json.RawMessage {
	if m, ok := b.find(name); ok {
		return b.raw[m.from:m.to]
	}
	return nil
}

// read decodes a small value; a value of another type counts as absent.
func (b body) read(name string, to any) {
	if v := b.get(name); len(v) <= maxText {
		_ = json.Unmarshal(v, to)
	}
}

func (b body) text(name string) (s string) { b.read(name, &s); return s }

func (b body) is(name string) (v bool) { b.read(name, &v); return v }

// number returns a field's whole number; 0 if there is none or it is not valid.
func (b body) number(name string) int64 {
	var f float64
	if b.read(name, &f); f >= 1 && f <= maxTokens {
		return int64(f)
	}
	return 0
}

func (b body) has(name string) bool {
	v := b.get(name)
	return v != nil && string(v) != "null"
}

// edit is the replacement of a part of a body.
type edit struct {
	from, to int
	by       string
}

// set returns the edit that sets a field.
func (b body) set(name, value string) edit {
	if m, ok := b.find(name); ok {
		return edit{m.from, m.to, value}
	}
	by := `"` + name + `":` + value
	if len(b.members) > 0 {
		by = "," + by
	}
	return edit{b.end, b.end, by}
}

func (e edit) size(raw []byte) int { return len(raw) - (e.to - e.from) + len(e.by) }

func (e edit) apply(raw []byte) []byte {
	out := make([]byte, 0, e.size(raw))
	out = append(out, raw[:e.from]...)
	out = append(out, e.by...)
	return append(out, raw[e.to:]...)
}
