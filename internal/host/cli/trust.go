package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/login"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// resolver resolves a command's run. It asks for trust on a terminal, unless a script reads the output.
func (a *App) resolver(asJSON bool) *resolve.Resolver {
	f := &resolve.Resolver{
		Credentials: credentials.New(a.Getenv),
		StateDir: func() (string, error) {
			st, err := a.store()
			if err != nil {
				return "", err
			}
			return st.Dir(), nil
		},
	}
	if !asJSON && a.person() {
		f.Confirm = func(ctx context.Context, e *resolve.UntrustedError) (bool, error) { return askTrust(ctx, a, e) }
		f.ConfirmLogin = func(ctx context.Context, l *login.Login) (bool, error) { return askLogin(ctx, a, l) }
	}
	return f
}

// person reports whether a person can be asked.
func (a *App) person() bool {
	in, ok := a.Stdin.(*os.File)
	return ok && isTerminal(in) && isTerminal(a.Stderr)
}

func askTrust(ctx context.Context, a *App, e *resolve.UntrustedError) (bool, error) {
	showAsks(a.Stderr, e.File, e.Asks)
	return a.yes(ctx, "Trust this file, as it is now?")
}

func askLogin(ctx context.Context, a *App, l *login.Login) (bool, error) {
	fmt.Fprintf(a.Stderr, "No key is given, and %s has a login on this machine: %s\n  %s\n", l.Harness, text.Clean(l.File), resolve.LoginAsk(l).Why)
	return a.yes(ctx, "Use it, now and in later tasks?")
}

// yes asks a question of which no is the default.
func (a *App) yes(ctx context.Context, question string) (bool, error) {
	fmt.Fprint(a.Stderr, question+" [y/N] ")
	line, err := bufio.NewReader(a.stdin(ctx)).ReadString('\n')
	if ctx.Err() != nil {
		return false, left(ctx)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("ask: %w", err)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

func showAsks(w io.Writer, file string, asks []trust.Ask) {
	fmt.Fprintf(w, "%s asks for more than its repository's code may do in the sandbox:\n", text.Clean(file))
	for _, k := range asks {
		fmt.Fprintf(w, "  %s: %s\n      %s\n", text.Clean(k.Key), text.Clean(k.Value), text.Clean(k.Why))
	}
}
