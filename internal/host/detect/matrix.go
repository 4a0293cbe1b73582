package detect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
)

// matrix returns the combinations of a matrix, the first base of which are products; one without a value if there is none, or if only a run
// has it.
func matrix(n *yaml.Node) (rows []map[string]any, base int) {
	rows = []map[string]any{{}}
	var keys []string
	var include, exclude []map[string]any
	pairs(n, func(key, value *yaml.Node) {
		switch key.Value {
		case "include":
			_ = value.Decode(&include)
			return
		case "exclude":
			_ = value.Decode(&exclude)
			return
		}
		var values []any
		if value.Decode(&values) != nil || len(values) == 0 {
			values = []any{unknown{}}
		}
		keys = append(keys, key.Value)
		var next []map[string]any
		for _, row := range rows {
			for _, v := range values {
				if len(next) < maxRows {
					next = append(next, with(row, key.Value, v))
				}
			}
		}
		rows = next
	})
	if n.Kind == yaml.ScalarNode && n.Value != "" {
		return []map[string]any{nil}, 1
	}
	rows = slices.DeleteFunc(rows, func(row map[string]any) bool {
		return slices.ContainsFunc(exclude, func(e map[string]any) bool { return len(e) > 0 && agrees(row, e, sortedKeys(e)) })
	})
	base = len(rows)
	if len(keys) == 0 && len(include) > 0 {
		rows, base = nil, 0
	}
	return included(rows, keys, include, base), base
}

// included adds the rows of include, or their values to the rows with which they agree.
func included(rows []map[string]any, keys []string, include []map[string]any, base int) []map[string]any {
	for _, in := range include {
		shared := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { _, ok := in[k]; return !ok })
		extends := false
		for i := range rows[:base] {
			if agrees(rows[i], in, shared) {
				extends = true
				for k, v := range in {
					rows[i] = with(rows[i], k, v)
				}
			}
		}
		if !extends && len(rows) < maxRows {
			rows = append(rows, in)
		}
	}
	return rows
}

func with(row map[string]any, key string, value any) map[string]any {
	next := map[string]any{key: value}
	for k, v := range row {
		if k != key {
			next[k] = v
		}
	}
	return next
}

func agrees(row, other map[string]any, keys []string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return fmt.Sprint(row[k]) != fmt.Sprint(other[k]) })
}

// unusual are values of a matrix that are not what most users have.
var unusual = lazyregexp.New(`(?i)` + among(`nightly head next canary alpha beta dev edge rc pypy graal jruby truffle experimental
	minimal lowest windows darwin macos`) + `|[0-9]t$`)

// sensible chooses a row of a matrix: usual values, and the newest versions.
func sensible(rows []*scope) *scope {
	best := rows[0]
	odd := func(s *scope) (n int) {
		if s.extra {
			n++
		}
		for k, v := range s.matrix {
			if unusual.MatchString(fmt.Sprint(v)) || lazyregexp.New(`(?i)experimental|allow|fail|coverage`).MatchString(k) && truth(v) {
				n++
			}
		}
		return n
	}
	for _, s := range rows[1:] {
		switch {
		case odd(s) > odd(best), len(s.matrix) > len(best.matrix) && odd(s) == odd(best) && !newer(s, best):
		case odd(s) < odd(best), newer(s, best):
			best = s
		}
	}
	return best
}

// leaves are the texts of a row, those of values in values too.
func leaves(row map[string]any, prefix string) map[string]string {
	all := map[string]string{}
	for k, v := range row {
		if inner, ok := v.(map[string]any); ok {
			maps.Copy(all, leaves(inner, prefix+k+"."))
		} else {
			all[prefix+k] = fmt.Sprint(v)
		}
	}
	return all
}

// newer reports whether a row has a newer version, and no older one.
func newer(a, b *scope) bool {
	found := false
	older := leaves(b.matrix, "")
	for k, x := range leaves(a.matrix, "") {
		y := older[k]
		x, xs, _ := strings.Cut(x, "-")
		y, ys, _ := strings.Cut(y, "-")
		if !plainNumber.MatchString(x) || !plainNumber.MatchString(y) {
			if strings.Contains(k, ".") && x != y {
				return false // the versions beside it are of different things
			}
			continue
		}
		if xs != ys {
			return false
		}
		switch versionrange.Compare(x, y) {
		case 1:
			found = true
		case -1:
			return false
		}
	}
	return found
}
