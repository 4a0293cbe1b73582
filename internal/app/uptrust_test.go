package app

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

func TestTrust(t *testing.T) {
	t.Parallel()
	mounts := []sandbox.Mount{{Source: "/src", Target: "/src"}}
	for _, c := range []struct {
		level   Trust
		spec    sandbox.Spec
		runtime string
		network sandbox.NetworkMode // "" for an error
	}{
		{TrustSandboxed, sandbox.Spec{}, "", sandbox.NetworkNone},
		{TrustSandboxed, sandbox.Spec{Network: sandbox.NetworkNone, Repo: "/src"}, "jail", sandbox.NetworkNone},
		{TrustSandboxed, sandbox.Spec{Network: sandbox.NetworkFull}, "", ""},
		{TrustSandboxed, sandbox.Spec{Mounts: mounts}, "", ""},
		{TrustSandboxed, sandbox.Spec{Worktree: "/src"}, "", ""},
		{TrustSandboxed, sandbox.Spec{}, "host", ""},
		{TrustTrusted, sandbox.Spec{Mounts: mounts}, "host", sandbox.NetworkFull},
		{TrustTrusted, sandbox.Spec{Network: sandbox.NetworkRestricted}, "", ""},
		{"some", sandbox.Spec{}, "", ""},
	} {
		s := c.spec
		switch err := c.level.Apply(&s, c.runtime); {
		case c.network == "":
			if err == nil {
				t.Errorf("%s: %+v, runtime %q: no error", c.level, c.spec, c.runtime)
			}
		case err != nil || s.Network != c.network:
			t.Errorf("%s: %+v: network %q, %v", c.level, c.spec, s.Network, err)
		}
	}
}
