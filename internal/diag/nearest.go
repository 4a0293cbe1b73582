package diag

import (
	"math"
	"slices"
	"strings"
)

// Nearest returns the candidate that s is most likely a slip of, or "" when
// none is near. Case does not count; of equally near ones it is the first.
func Nearest(s string, candidates []string) string {
	best, bestDistance := "", max(1, len([]rune(s))/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(s), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// longest bounds the work of a comparison: names of keys and projects are short.
const longest = 64

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours that turn a into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > longest || len(y) > longest {
		return math.MaxInt
	}
	before, last := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row := make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			row[j] = slices.Min([]int{last[j] + 1, row[j-1] + 1, last[j-1] + change})
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(y)]
}
