package app

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// FallbackHost is the only value of the flag and of the setting that say what may run where no isolation is available.
const FallbackHost = statedir.FallbackHost

// CheckFallback checks the value of the flag. runtime is that of the flag for runtimes.
func CheckFallback(e *Env, flag, runtime string) error {
	switch {
	case flag == "":
		return nil
	case flag != FallbackHost:
		return Usagef("--fallback %q: use %s", flag, FallbackHost)
	case runtime != "":
		return Usagef("--fallback and --runtime cannot be combined: a named runtime has no other in its place")
	}
	s, err := statedir.LoadSettings(e.Getenv)
	if err == nil && s.Security.SandboxRequired {
		err = fmt.Errorf("--fallback %s: %s says `require_sandbox: true`", flag, s.File)
	}
	return exiterr.New(workorder.ExitInvalid, err, "")
}

// mayFallBack reports whether the flag, or else the setting, allows sandboxes without isolation where none is available.
func mayFallBack(e *Env, flag string) (bool, error) {
	if flag != "" {
		return true, nil
	}
	s, err := statedir.LoadSettings(e.Getenv)
	return err == nil && s.Security.FallbackHost, exiterr.New(workorder.ExitInvalid, err, "")
}

// warnOfFallback warns that commands of a sandbox, or code, are not isolated.
func warnOfFallback(e *Env, what, why string) {
	e.Warn(fmt.Sprintf("no isolation is available (%s): %s on this machine as you, with its files and its network", why, what))
}

// createSandbox chooses the runtime of a new sandbox by the flag runtime, and creates it. If none is available that isolates, and
// the flag fallback or the setting allows it, the sandbox has no isolation.
func createSandbox(
	ctx context.Context, b Sandboxes, m *sandbox.Manager, s sandbox.Spec, runtime, fallback string,
) (*sandbox.Sandbox, error) {
	why, err := whyNoIsolation(ctx, b.Env, m, s, runtime, fallback)
	if err != nil {
		return nil, err
	}
	if why == "" {
		if err := b.ChooseRuntime(ctx, m, &s, runtime); err != nil {
			noteFailed(b.Env, s.Name, err)
			return nil, err
		}
		return createNamed(ctx, b, m, s)
	}
	host, err := b.manager(sandbox.Options{AllowHost: true})
	if err != nil {
		return nil, err
	}
	defer host.Close()
	s.Runtime = sandbox.RuntimeHost
	sb, err := createNamed(ctx, b, host, s)
	if err == nil {
		warnOfFallback(b.Env, "commands in "+sb.Name()+" run", why)
	}
	return sb, err
}

// whyNoIsolation says why a new sandbox is to have none; "" if it must have it.
func whyNoIsolation(ctx context.Context, e *Env, m *sandbox.Manager, s sandbox.Spec, runtime, fallback string) (string, error) {
	named, err := e.Runtime(runtime)
	if err != nil || named != sandbox.RuntimeAuto || s.Image != "" || e.Getenv(ImageVariable) != "" {
		return "", err
	}
	if ok, err := mayFallBack(e, fallback); !ok {
		return "", err
	}
	var why []string
	for _, k := range []sandbox.Runtime{sandbox.RuntimeJail, sandbox.RuntimeContainer} {
		i := m.Runtimes(ctx, k)[0]
		if i.Healthy {
			return "", nil
		}
		why = append(why, fmt.Sprintf("%s: %s", k, i.Reason))
	}
	return strings.Join(why, "; "), context.Cause(ctx)
}

// fallback is code.Options.Fallback for the flag, or for the setting. It warns once.
func (c Code) fallback(flag string) func(why string) (bool, error) {
	var once sync.Once
	return func(why string) (bool, error) {
		ok, err := mayFallBack(c.Env, flag)
		if ok {
			once.Do(func() { warnOfFallback(c.Env, "code runs", why) })
		}
		return ok, err
	}
}
