package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Trust sets the network, mounts and secrets of a sandbox by how far the user trusts the code in it; "" sets nothing.
type Trust string

const (
	// TrustSandboxed is for unknown code: no network, no directories of this machine, no secrets.
	TrustSandboxed Trust = "sandboxed"
	// TrustTrusted is for known code: the full network.
	TrustTrusted Trust = "trusted"
)

// TrustLevels lists the values of Trust.
func TrustLevels() []string { return []string{string(TrustSandboxed), string(TrustTrusted)} }

// Apply sets the network of a spec. The error names all parts of the spec, and the named runtime, that contradict the level.
func (t Trust) Apply(s *sandbox.Spec, runtime string) error {
	network := sandbox.NetworkFull
	var errs []error
	switch t {
	case "":
		return nil
	case TrustSandboxed:
		network = sandbox.NetworkNone
		if len(s.Mounts) > 0 {
			errs = append(errs, errors.New("--trust sandboxed: no --mount and no --workspace; copy files with cp, or use --repo"))
		}
		if s.Worktree != "" {
			errs = append(errs, errors.New("--trust sandboxed: no --git-worktree; use --repo, which makes a clone"))
		}
		if runtime == string(sandbox.RuntimeHost) {
			errs = append(errs, errors.New("--trust sandboxed: runtime host isolates nothing"))
		}
	case TrustTrusted:
	default:
		return fmt.Errorf("--trust %q: must be %s", t, strings.Join(TrustLevels(), " or "))
	}
	if s.Network != "" && s.Network != network {
		errs = append(errs, fmt.Errorf("--trust %s means --network %s, not %s", t, network, s.Network))
	}
	s.Network = network
	return errors.Join(errs...)
}

// checkSecrets returns an error if a project gives secrets to a sandbox that must not have any.
func (t Trust) checkSecrets(ctx context.Context, b Sandboxes, s sandbox.Spec) error {
	if t != TrustSandboxed || s.Project == "" {
		return nil
	}
	g, err := b.Project(ctx, s)
	if err != nil {
		return err
	}
	names := g.Project.SecretNames()
	if len(names) == 0 {
		return nil
	}
	return exiterr.New(workorder.ExitUsage, fmt.Errorf("--trust sandboxed: the project has secrets: %s", strings.Join(names, ", ")),
		"use a project without secrets, or --network none instead of --trust")
}
