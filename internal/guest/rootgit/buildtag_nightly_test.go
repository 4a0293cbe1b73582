//go:build nightly

package rootgit

import "testing"

// nightlyOnly is false in nightly runs: all rows run.
func nightlyOnly(*testing.T, string) bool { return false }
