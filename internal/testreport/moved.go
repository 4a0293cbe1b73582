package testreport

import (
	"cmp"
	"slices"
	"strings"
)

// maxNamesakes is how many suites may have gained or lost a test of one name for
// it to say anything about a move. Names such as "works" are everywhere.
const maxNamesakes = 32

// move gives tests of base that are in another suite on head that suite's name, so
// that a renamed file or package is not a deletion and an addition.
func move(b, h map[testKey]*seen) {
	lost, gained := namesakes(b, h), namesakes(h, b)
	type pair struct{ from, to string }
	votes := map[pair]int{}
	for n, froms := range lost {
		if tos := gained[n]; len(froms) <= maxNamesakes && len(tos) <= maxNamesakes {
			for _, from := range froms {
				for _, to := range tos {
					votes[pair{from, to}]++
				}
			}
		}
	}
	pairs := make([]pair, 0, len(votes))
	for p := range votes {
		pairs = append(pairs, p)
	}
	// The suites that share most names first: a renamed file takes all of them along.
	slices.SortFunc(pairs, func(x, y pair) int {
		return cmp.Or(cmp.Compare(votes[y], votes[x]), strings.Compare(x.from, y.from), strings.Compare(x.to, y.to))
	})
	bySuite := map[string][]string{}
	for n, froms := range lost {
		for _, from := range froms {
			bySuite[from] = append(bySuite[from], n)
		}
	}
	for _, p := range pairs {
		for _, n := range bySuite[p.from] {
			old, now := testKey{p.from, n}, testKey{p.to, n}
			if b[old] != nil && h[now] != nil && b[now] == nil {
				b[now] = b[old]
				delete(b, old)
			}
		}
	}
}

// namesakes are the suites of each name that is in a and not in b under the same suite.
func namesakes(a, b map[testKey]*seen) map[string][]string {
	out := map[string][]string{}
	for k := range a {
		if b[k] == nil && k.name != wholeSuite {
			out[k.name] = append(out[k.name], k.suite)
		}
	}
	return out
}
