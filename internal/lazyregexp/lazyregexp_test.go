package lazyregexp

import (
	"slices"
	"sync"
	"testing"
)

func TestPattern(t *testing.T) {
	t.Parallel()
	p := New(`(\w)(\d)`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if !p.MatchString("xa1") || p.FindString("xa1b2") != "a1" || !slices.Equal(p.FindStringSubmatch("a1"),
				[]string{"a1", "a", "1"}) || p.ReplaceAllString("a1", "$2$1") != "1a" {
				t.Error("a pattern is not what regexp makes of it")
			}
		})
	}
	wg.Wait()
}

// A pattern that is wrong fails every test of its package.
func TestWrongPattern(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("it was compiled")
		}
	}()
	New(`(`)
}
