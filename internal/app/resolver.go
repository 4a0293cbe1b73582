package app

import (
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/host/agentlogin"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// UntrustedError lists the requests of a project file that the user has not trusted.
type UntrustedError = resolve.UntrustedError

// Resolver resolves projects and credentials. If ask is set and there is a person, it asks them for trust.
func (e *Env) Resolver(ask bool) *resolve.Resolver {
	r := &resolve.Resolver{Credentials: credentials.New(e.Getenv), StateDir: e.StateDir}
	if ask && e.Confirm != nil {
		r.Confirm = func(ctx context.Context, u *UntrustedError) (bool, error) {
			for _, line := range TrustLines(u.File, u.Permissions) {
				e.Say(line)
			}
			return e.Confirm(ctx, "Trust this file, as it is now?")
		}
		r.ConfirmLogin = func(ctx context.Context, l *agentlogin.Login) (bool, error) {
			e.Say(fmt.Sprintf("No key is given, and %s has a login on this machine: %s\n  %s",
				l.Harness, text.Clean(l.File), resolve.LoginAsk(l).Reason))
			return e.Confirm(ctx, "Use it, now and in later tasks?")
		}
	}
	return r
}

// TrustLines lists what a project file asks for, for the person who decides.
func TrustLines(file string, asks []trust.Permission) []string {
	lines := []string{text.Clean(file) + " asks for more than its repository's code may do in the sandbox:"}
	for _, k := range asks {
		lines = append(lines, fmt.Sprintf("  %s: %s\n      %s", text.Clean(k.Key), text.Clean(k.Value), text.Clean(k.Reason)))
	}
	return lines
}
