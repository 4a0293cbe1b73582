package versionrange

import (
	"strconv"
	"time"
)

// ltsNames are Node's names of long-term releases.
var ltsNames = map[string]int{
	"argon": 4, "boron": 6, "carbon": 8, "dubnium": 10, "erbium": 12, "fermium": 14, "gallium": 16, "hydrogen": 18, "iron": 20,
	"jod": 22, "krypton": 24,
}

// ltsMajor is the major number of a long-term release of Node; 0 if the name is none. An even number comes in spring, and is one from
// the end of October on: 24 came in 2025.
func ltsMajor(name string, now time.Time) int {
	const year, number = 2025, 24
	newest := number + 2*(now.Year()-year)
	if now.Before(time.Date(now.Year(), time.October, 28, 0, 0, 0, 0, time.UTC)) {
		newest -= 2
	}
	switch back, err := strconv.Atoi(name); {
	case name == "" || name == "*":
		return newest
	case err == nil && back < 0 && 2*back > -newest:
		return newest + 2*back
	}
	return ltsNames[name]
}
