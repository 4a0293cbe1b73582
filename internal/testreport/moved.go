package testreport

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// maxNamesakes bounds the suites that may have gained or lost a test of one name: names such as "works" are common.
const maxNamesakes = 32

// move renames the suites of base's tests that are in another suite on head, so that a renamed file is no deletion.
func move(b, h map[testKey]*testOutcome) {
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
	// The suites that share most names first.
	pairs := slices.SortedFunc(maps.Keys(votes), func(x, y pair) int {
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

// namesakes returns, for each name, the suites in a that b lacks.
func namesakes(a, b map[testKey]*testOutcome) map[string][]string {
	out := map[string][]string{}
	for k := range a {
		if b[k] == nil && k.name != wholeSuite {
			out[k.name] = append(out[k.name], k.suite)
		}
	}
	return out
}
