// Package lazyregexp compiles regular expressions at their first use, so that commands that need none of them start
// faster.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Pattern is a regular expression. Its methods are those of regexp.Regexp and safe for concurrent use.
type Pattern struct {
	compiled func() *regexp.Regexp
}

// New is a pattern of that syntax. One that cannot be compiled panics at its first use, as regexp.MustCompile does.
func New(expr string) *Pattern {
	return &Pattern{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })}
}

// MatchString is regexp.Regexp's.
func (p *Pattern) MatchString(s string) bool { return p.compiled().MatchString(s) }

// FindString is regexp.Regexp's.
func (p *Pattern) FindString(s string) string { return p.compiled().FindString(s) }

// FindStringIndex is regexp.Regexp's.
func (p *Pattern) FindStringIndex(s string) []int { return p.compiled().FindStringIndex(s) }

// FindStringSubmatch is regexp.Regexp's.
func (p *Pattern) FindStringSubmatch(s string) []string { return p.compiled().FindStringSubmatch(s) }

// FindStringSubmatchIndex is regexp.Regexp's.
func (p *Pattern) FindStringSubmatchIndex(s string) []int {
	return p.compiled().FindStringSubmatchIndex(s)
}

// FindAllStringSubmatch is regexp.Regexp's.
func (p *Pattern) FindAllStringSubmatch(s string, n int) [][]string {
	return p.compiled().FindAllStringSubmatch(s, n)
}

// ReplaceAllString is regexp.Regexp's.
func (p *Pattern) ReplaceAllString(s, by string) string { return p.compiled().ReplaceAllString(s, by) }

// ReplaceAllStringFunc is regexp.Regexp's.
func (p *Pattern) ReplaceAllStringFunc(s string, by func(string) string) string {
	return p.compiled().ReplaceAllStringFunc(s, by)
}

// Match is regexp.Regexp's.
func (p *Pattern) Match(b []byte) bool { return p.compiled().Match(b) }

// FindIndex is regexp.Regexp's.
func (p *Pattern) FindIndex(b []byte) []int { return p.compiled().FindIndex(b) }

// FindSubmatch is regexp.Regexp's.
func (p *Pattern) FindSubmatch(b []byte) [][]byte { return p.compiled().FindSubmatch(b) }
