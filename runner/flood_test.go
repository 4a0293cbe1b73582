//go:build !race

package runner

// floodBytes is what an agent prints in the flood test.
const floodBytes = 200_000_000
