//go:build nightly

package rootgit

import "testing"

// leftToNight: see buildtag_test.go.
func leftToNight(*testing.T, string) bool { return false }
