// Package lazyregexp compiles regular expressions at their first use, so that commands that need none of them start
// faster.
package lazyregexp

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// Pattern is a regular expression. Its methods are those of regexp.Regexp and safe for concurrent use.
type Pattern struct {
	expr     string
	compiled func() *regexp.Regexp
}

// inTest reports that this program is a test, in which a pattern that cannot be compiled must not wait for its first use.
var inTest = len(os.Args) > 0 && strings.HasSuffix(os.Args[0], ".test")

// New is a pattern of that syntax. One that cannot be compiled panics as regexp.MustCompile does, at its first use or at once in a test.
func New(expr string) *Pattern {
	p := &Pattern{expr, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })}
	if inTest {
		p.compiled()
	}
	return p
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

// String is the source of the pattern, which is not compiled for it.
func (p *Pattern) String() string { return p.expr }

// Split is regexp.Regexp's.
func (p *Pattern) Split(s string, n int) []string { return p.compiled().Split(s, n) }

// FindAllIndex is regexp.Regexp's.
func (p *Pattern) FindAllIndex(b []byte, n int) [][]int { return p.compiled().FindAllIndex(b, n) }

// FindAllString is regexp.Regexp's.
func (p *Pattern) FindAllString(s string, n int) []string { return p.compiled().FindAllString(s, n) }

// FindAllStringIndex is regexp.Regexp's.
func (p *Pattern) FindAllStringIndex(s string, n int) [][]int {
	return p.compiled().FindAllStringIndex(s, n)
}

// FindAllStringSubmatchIndex is regexp.Regexp's.
func (p *Pattern) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return p.compiled().FindAllStringSubmatchIndex(s, n)
}

// SubexpIndex is regexp.Regexp's.
func (p *Pattern) SubexpIndex(name string) int { return p.compiled().SubexpIndex(name) }

// ReplaceAll is regexp.Regexp's.
func (p *Pattern) ReplaceAll(b, by []byte) []byte { return p.compiled().ReplaceAll(b, by) }
