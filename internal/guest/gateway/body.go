package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
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

// body is the JSON object of a request, byte for byte: prompt caches depend on its bytes. No part is copied.
type body struct {
	raw     []byte
	members []member
	end     int // position of the closing brace
}

var errTwice = errors.New("a field is given twice")

// parseBody reads an object. It refuses duplicate fields: gateway and server could each use a different one.
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

func (b body) find(name string) (member, bool) {
	for _, m := range b.members {
		if strings.EqualFold(m.name, name) {
			return m, true
		}
	}
	return member{}, false
}

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

type edit struct {
	from, to int
	by       string
}

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

// maxHeld bounds the memory of all bodies at one time, in bytes: requests, answers, and copies of them.
const maxHeld = 4 * maxRequest

// firstRead is the memory that a body gets before any of it has arrived: a declared length reserves nothing.
const firstRead = 16 << 10

var (
	errNoRoom  = errors.New("too many large bodies at the same time")
	errTooLong = errors.New("the body is too long")
)

type memoryLimit struct {
	mu   sync.Mutex
	free int64
	more chan struct{} // closed and replaced when memory is returned
}

func newMemoryLimit(size int64) *memoryLimit {
	return &memoryLimit{free: size, more: make(chan struct{})}
}

// take takes n bytes, or returns a channel to wait for.
func (m *memoryLimit) take(n int64) (wait <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > m.free {
		return m.more
	}
	m.free -= n
	return nil
}

func (m *memoryLimit) give(n int64) {
	if n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free += n
	close(m.more)
	m.more = make(chan struct{})
}

// memoryShare is one call's share of the memory limit. Only one goroutine uses it at a time.
type memoryShare struct {
	room *memoryLimit
	size int64
	// patience is how long grow waits for others to return memory. Zero means not at all.
	patience time.Duration
	over     <-chan struct{} // ends the wait
}

func (s *memoryShare) grow(n int64) bool {
	wait := s.room.take(n)
	if wait != nil && s.patience > 0 {
		t := time.NewTimer(s.patience)
		defer t.Stop()
		for wait != nil {
			select {
			case <-wait:
				wait = s.room.take(n)
			case <-t.C:
				return false
			case <-s.over:
				return false
			}
		}
	}
	if wait != nil {
		return false
	}
	s.size += n
	return true
}

func (s *memoryShare) shrink(n int64) {
	s.size -= n
	s.room.give(n)
}

func (s *memoryShare) resize(n int64) bool {
	if n <= s.size {
		s.shrink(s.size - n)
		return true
	}
	return s.grow(n - s.size)
}

func (s *memoryShare) release() { s.shrink(s.size) }

// fill reads to the end and holds little more than it has read. With an error it returns the part it has read.
func (s *memoryShare) fill(r io.Reader, limit int64) ([]byte, error) {
	var b []byte
	for {
		if len(b) == cap(b) {
			next := min(max(2*int64(cap(b)), firstRead), limit+1)
			if !s.grow(next) { // both exist during the copy
				return b, errNoRoom
			}
			bigger := make([]byte, len(b), next)
			copy(bigger, b)
			s.shrink(int64(cap(b)))
			b = bigger
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return b, errTooLong
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, err
		}
	}
}
