package github_test

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
)

// TestConformance: what forge.Forge promises. The other tests here are about GitHub.
func TestConformance(t *testing.T) {
	t.Parallel()
	forgetest.Conformance(t, func(t *testing.T, pageSize int) (forgetest.Scene, forge.Forge) {
		t.Helper()
		f, c, _ := scripted(t, forgetest.Options{PageSize: pageSize})
		return f, c
	})
}
