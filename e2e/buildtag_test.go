//go:build e2e && !nightly

package e2e

// nightly: see buildtag_nightly_test.go.
const nightly = false
