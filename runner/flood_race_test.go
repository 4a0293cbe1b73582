//go:build race

package runner

// floodBytes is less under the race detector, which makes every byte some ten
// times dearer, and still a multiple of what a log keeps.
const floodBytes = 40_000_000
