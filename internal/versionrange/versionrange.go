// Package versionrange reads versions of tools, and ranges of them as the ecosystems write them.
package versionrange

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// version is the numbers of a version, and what marks it as one before a release.
type version struct {
	nums []int
	pre  string
}

var (
	// form takes what programs, registries and lists of packages write: v22.1.0, go1.26rc1, 17.0.9+9, 3.3.0p0, 21.0.13-1~deb13u1.
	form   = lazyregexp.New(`^(?:v|go)?([0-9]{1,9}(?:\.[0-9]{1,9}){0,4})((?:[A-Za-z+~_-][A-Za-z0-9.+~:_-]*)?)$`)
	before = lazyregexp.New(`^[-.]?(?:alpha|beta|rc|a|b|pre|preview|canary|next|nightly|dev|ea|m)[-.]?[0-9]*(?:[-.].*)?$`)
)

func parse(s string) (version, bool) {
	m := form.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return version{}, false
	}
	var v version
	for n := range strings.SplitSeq(m[1], ".") {
		i, err := strconv.Atoi(n)
		if err != nil {
			return version{}, false
		}
		v.nums = append(v.nums, i)
	}
	rest, _, _ := strings.Cut(m[2], "+")
	if rest = strings.ToLower(rest); before.MatchString(rest) {
		v.pre = strings.Trim(rest, "-.")
	}
	return v, true
}

// to compares the first n numbers; those that are not there are 0.
func (v version) to(o version, n int) int {
	for i := range n {
		if c := cmp.Compare(v.at(i), o.at(i)); c != 0 {
			return c
		}
	}
	return 0
}

func (v version) at(i int) int {
	if i < len(v.nums) {
		return v.nums[i]
	}
	return 0
}

func (v version) compare(o version) int {
	if c := v.to(o, max(len(v.nums), len(o.nums))); c != 0 {
		return c
	}
	switch {
	case v.pre == o.pre:
		return 0
	case v.pre == "":
		return 1
	case o.pre == "":
		return -1
	}
	return cmp.Compare(v.pre, o.pre)
}

// Compare orders two versions; a text that is none comes first.
func Compare(a, b string) int {
	x, okX := parse(a)
	y, okY := parse(b)
	if !okX || !okY {
		return cmp.Compare(btoi(okX), btoi(okY))
	}
	return x.compare(y)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Range is a set of versions.
type Range struct {
	any  [][]bound // one of these holds, and all bounds of it
	text string
}

type bound struct {
	op string // >= < > <= = !=
	version
}

var (
	token  = lazyregexp.New(`^(>=|<=|===|==|~=|~>|!=|>|<|=|\^|~)?\s*(?:v|go)?([0-9xX*][^\s,|]*)`)
	hyphen = lazyregexp.New(`^(\S+)\s+-\s+(\S+)$`)
	wild   = lazyregexp.New(`^[xX*]$|\.[xX*].*$`)
)

// Parse reads a version ("1.26.3"), a beginning of one ("22": any 22.x), a range as npm, pip, Poetry, Composer or Bundler write it, or
// a name of Node's (lts/*, lts/iron). Every wildcard, "latest" and "stable" mean any version.
func Parse(s string) (Range, error) { return parseAt(s, time.Now()) }

func parseAt(s string, now time.Time) (Range, error) {
	r := Range{text: s}
	s = strings.TrimSpace(s)
	switch strings.ToLower(s) {
	case "":
		return r, fmt.Errorf("a version is missing")
	case "*", "x", "latest", "stable", "node", "current":
		r.any = [][]bound{{}}
		return r, nil
	}
	if name, ok := strings.CutPrefix(strings.ToLower(s), "lts"); ok {
		major := ltsMajor(strings.TrimPrefix(name, "/"), now)
		if major == 0 {
			return r, fmt.Errorf("%q is no name of a long-term release", s)
		}
		s = strconv.Itoa(major)
	}
	for alternative := range strings.SplitSeq(strings.ReplaceAll(s, "||", "|"), "|") {
		all, err := bounds(strings.TrimSpace(alternative))
		if err != nil {
			return r, err
		}
		r.any = append(r.any, all)
	}
	return r, nil
}

func bounds(s string) (all []bound, err error) {
	if m := hyphen.FindStringSubmatch(s); m != nil {
		s = ">=" + m[1] + " <=" + m[2]
	}
	if s == "" {
		return nil, fmt.Errorf("a version is missing beside |")
	}
	for s != "" {
		m := token.FindStringSubmatch(s)
		if m == nil {
			return nil, fmt.Errorf("%q is neither a version nor a range", s)
		}
		s = strings.TrimLeft(s[len(m[0]):], " \t,")
		op, text := m[1], m[2]
		if wild.MatchString(text) {
			text = wild.ReplaceAllString(text, "")
			if text == "" {
				continue // any
			}
			if op == "" || op == "==" || op == "===" {
				op = "="
			}
		}
		v, ok := parse(text)
		if !ok {
			return nil, fmt.Errorf("%q is no version", text)
		}
		all = append(all, simple(op, v)...)
	}
	return all, nil
}

// simple says an operator by those that a bound has.
func simple(op string, v version) []bound {
	switch op {
	case "", "=", "==", "===":
		return []bound{{"=", v}}
	case "^":
		i := 0
		for i < len(v.nums)-1 && v.nums[i] == 0 {
			i++
		}
		return []bound{{">=", v}, {"<", v.next(i)}}
	case "~":
		return []bound{{">=", v}, {"<", v.next(min(1, len(v.nums)-1))}}
	case "~=", "~>":
		return []bound{{">=", v}, {"<", v.next(max(0, len(v.nums)-2))}}
	}
	return []bound{{op, v}}
}

// next is the first version with a higher number at i.
func (v version) next(i int) version {
	n := slices.Clone(v.nums[:i+1])
	n[i]++
	return version{nums: n}
}

func (r Range) String() string { return r.text }

// Has reports whether a version is in the range. One before a release is, where the range names one of the same numbers.
func (r Range) Has(s string) bool {
	v, ok := parse(s)
	return ok && slices.ContainsFunc(r.any, func(all []bound) bool {
		if v.pre != "" && !slices.ContainsFunc(all, func(b bound) bool { return b.pre != "" && slices.Equal(b.nums, v.nums) }) {
			return false
		}
		return !slices.ContainsFunc(all, func(b bound) bool { return !b.holds(v) })
	})
}

func (b bound) holds(v version) bool {
	begins := v.to(b.version, len(b.nums)) == 0 && (b.pre == "" || b.pre == v.pre)
	switch b.op {
	case "=":
		return begins
	case "!=":
		return !begins
	case ">=":
		return v.compare(b.version) >= 0
	case "<":
		return v.compare(b.version) < 0
	case ">": // of 20 it is 21 and later
		return v.to(b.version, len(b.nums)) > 0
	default: // "<=": of 20 it is all 20.x, too
		return v.to(b.version, len(b.nums)) <= 0
	}
}

// Newest is the newest version of a list that is in the range; empty if none is.
func (r Range) Newest(list []string) (newest string) {
	for _, v := range list {
		if r.Has(v) && (newest == "" || Compare(v, newest) > 0) {
			newest = v
		}
	}
	return newest
}

// Near are up to n versions of a list, newest first: those with the major number that the range names, else the newest of each.
func (r Range) Near(list []string, n int) (near []string) {
	var all []string
	for _, s := range list {
		if v, ok := parse(s); ok && v.pre == "" {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return Compare(b, a) })
	majors := map[int]bool{}
	var newest []string
	for _, s := range slices.Compact(all) {
		v, _ := parse(s)
		if r.names(v.at(0)) {
			near = append(near, s)
		}
		if !majors[v.at(0)] {
			majors[v.at(0)], newest = true, append(newest, s)
		}
	}
	if len(near) == 0 {
		near = newest
	}
	return near[:min(n, len(near))]
}

func (r Range) names(major int) bool {
	return slices.ContainsFunc(r.any, func(all []bound) bool {
		return slices.ContainsFunc(all, func(b bound) bool { return b.at(0) == major })
	})
}
