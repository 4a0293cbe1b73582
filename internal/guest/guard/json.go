package guard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// maxDepth exceeds the nesting of every body of the API.
const maxDepth = 32

// parse reads one JSON value. A duplicate key is an error: decoders differ in which value they use.
func parse(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, refuse(ruleBody, "invalid JSON body (%v)", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, refuse(ruleBody, "data after the JSON value of the body")
	}
	return v, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("too deeply nested")
	}
	t, err := d.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		return parseObject(d, depth)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return t, nil
}

func parseObject(d *json.Decoder, depth int) (any, error) {
	m := map[string]any{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		k, ok := t.(string)
		if !ok {
			return nil, errors.New("a key is not a string")
		}
		if _, twice := m[k]; twice {
			return nil, errors.New("an object has the key " + clean(k) + " twice")
		}
		if m[k], err = parseValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return m, err
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, refuse(ruleBody, "the body cannot be encoded (%v)", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// fold returns the name under which encoding/json finds a field: "ſ" is an s, "K" (the sign of Kelvin) a k.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, s)
}

// empty reports whether decoders treat a value as they treat its absence.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// check checks the value of a field and returns the value to forward.
type check func(j *judge, at string, v any) (any, error)

// join returns the name of a field of the value at a path; the body itself has no name.
func join(at, key string) string { return strings.TrimPrefix(at+"."+key, ".") }

// object returns a check of a JSON object with known fields; unknown fields are refused.
func object(fields map[string]check) check { return members(fields, false) }

// lenient is like object, but drops unknown fields: clients put their own fields there, which the engine ignores.
func lenient(fields map[string]check) check { return members(fields, true) }

func members(fields map[string]check, drop bool) check {
	names := make(map[string]string, len(fields))
	for name := range fields {
		names[fold(name)] = name
	}
	return func(j *judge, at string, v any) (any, error) {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, refuse(ruleBody, "%s must be an object", cmp.Or(at, "the body"))
		}
		out := make(map[string]any, len(m))
		seen := make(map[string]bool, len(m))
		for _, key := range slices.Sorted(maps.Keys(m)) {
			v, folded := m[key], fold(key)
			name, known := names[folded]
			if !known {
				if drop || empty(v) {
					continue
				}
				return nil, refuse(ruleField, "%s is an unknown setting", join(at, key))
			}
			if seen[folded] {
				return nil, refuse(ruleBody, "%s is given twice", join(at, name))
			}
			seen[folded] = true
			if v == nil {
				continue // treated as absent
			}
			if c := fields[name]; c != nil {
				var err error
				if v, err = c(j, join(at, name), v); err != nil {
					return nil, err
				}
			}
			out[name] = v
		}
		return out, nil
	}
}

// listOf returns a check of each element of a list; null elements are refused.
func listOf(c check) check {
	return func(j *judge, at string, v any) (any, error) {
		list, ok := v.([]any)
		if !ok {
			return nil, refuse(ruleBody, "%s must be a list", at)
		}
		out := make([]any, 0, len(list))
		for _, e := range list {
			if e == nil {
				return nil, refuse(ruleBody, "%s has a null element", at)
			}
			e, err := c(j, at, e)
			if err != nil {
				return nil, err
			}
			out = append(out, e)
		}
		return out, nil
	}
}

// mapOf returns a check of the values of an object with arbitrary keys.
func mapOf(c func(j *judge, at, key string, v any) (any, error)) check {
	return func(j *judge, at string, v any) (any, error) {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, refuse(ruleBody, "%s must be an object", at)
		}
		out := make(map[string]any, len(m))
		for _, key := range slices.Sorted(maps.Keys(m)) {
			v, err := c(j, at, key, m[key])
			if err != nil {
				return nil, err
			}
			out[key] = v
		}
		return out, nil
	}
}

func text(c func(j *judge, at, s string) (string, error)) check {
	return func(j *judge, at string, v any) (any, error) {
		s, ok := v.(string)
		if !ok {
			return nil, refuse(ruleBody, "%s must be a string", at)
		}
		return c(j, at, s)
	}
}

func oneOf(rule string, allowed ...string) check {
	return text(func(_ *judge, at, s string) (string, error) {
		if slices.Contains(allowed, s) {
			return s, nil
		}
		return "", refuse(rule, "%s %q is not possible in a sandbox", at, s)
	})
}

func unset(rule string) check {
	return func(_ *judge, at string, v any) (any, error) {
		if !empty(v) {
			return nil, refuse(rule, "%s is not possible in a sandbox", at)
		}
		return v, nil
	}
}
