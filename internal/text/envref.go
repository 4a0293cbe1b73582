package text

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// expand replaces each reference $NAME and ${NAME} by lookup's value. An unknown name and a dollar without a reference
// are errors. $$ is a dollar.
func expand(value string, lookup func(name string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(value, "$")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		if after, literal := strings.CutPrefix(rest, "$"); literal {
			out.WriteByte('$')
			value = after
			continue
		}
		name, after, err := reference(rest)
		if err != nil {
			return "", err
		}
		v, ok := lookup(name)
		if !ok {
			return "", fmt.Errorf("the image has no variable $%s", name)
		}
		out.WriteString(v)
		value = after
	}
}

func reference(s string) (name, rest string, err error) {
	inner, braced := strings.CutPrefix(s, "{")
	if braced {
		s = inner
	}
	end := strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	if end < 0 {
		end = len(s)
	}
	name, rest = s[:end], s[end:]
	switch {
	case name == "" || name[0] >= '0' && name[0] <= '9':
		return "", "", errors.New("a dollar sign is not followed by a variable name")
	case !braced:
		return name, rest, nil
	}
	rest, closed := strings.CutPrefix(rest, "}")
	if !closed {
		return "", "", fmt.Errorf("${%s is not closed after the name", name)
	}
	return name, rest, nil
}

// References lists the variables that value refers to.
func References(value string) (names []string, err error) {
	_, err = expand(value, func(name string) (string, bool) { names = append(names, name); return "", true })
	return names, err
}

// EscapeReferences escapes a text so that ExpandReferences returns it.
func EscapeReferences(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// SplitReferences separates variables whose values have references from plain ones, which come without escapes.
func SplitReferences(env map[string]string) (plain, refer map[string]string) {
	plain = maps.Clone(env)
	for name, value := range env {
		text, err := expand(value, func(string) (string, bool) { return "", false })
		if err == nil {
			plain[name] = text
			continue
		}
		if refer == nil {
			refer = map[string]string{}
		}
		refer[name] = value
		delete(plain, name)
	}
	return plain, refer
}

// ExpandReferences expands variables by an environment of NAME=value entries, of which the last counts, and returns
// such entries in the order of the names.
func ExpandReferences(refer map[string]string, env []string) (all []string, err error) {
	have := map[string]string{}
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			have[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(refer)) {
		value, err := expand(refer[name], func(name string) (string, bool) { v, ok := have[name]; return v, ok })
		if err != nil {
			return nil, fmt.Errorf("env %s: %w; write $$ for a dollar", name, err)
		}
		all = append(all, name+"="+value)
	}
	return all, nil
}
