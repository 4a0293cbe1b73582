package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const callsTime = 10 * time.Second // bounds copying calls out of a box

// ModelCalls returns the calls of the model gateway of a box, also of a removed one: a JSON document per line with time, model,
// tokens and status, without content and keys.
func (m *Manager) ModelCalls(ctx context.Context, name string) ([]byte, error) {
	if err := checkName("sandbox", name); err != nil {
		return nil, err
	}
	in, err := m.creator.find(ctx, name)
	if err == nil {
		err = in.keepCalls(ctx)
	}
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable) {
		return nil, err
	}
	if m.creator.state == "" {
		return nil, errNoState
	}
	return m.creator.kept.Calls(name)
}

// keepCalls copies the calls of a box's model gateway to the state directory, where they survive the box.
func (in *instance) keepCalls(ctx context.Context) error {
	r, id := in.at()
	c, ok := r.(runtime.OutCopier)
	if s := in.spec; !ok || id == "" || in.foreign || in.c.state == "" || s.Runtime != RuntimeBox || s.Lifetime == LifetimeEphemeral {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callsTime)
	defer cancel()
	b, err := runtime.ReadFile(ctx, c, id, workorder.OutDir+"/"+workorder.ModelCallsFile, sandboxstore.MaxCalls)
	if err != nil {
		return public(fmt.Errorf("read the calls of sandbox %s: %w", in.spec.Name, err))
	}
	return in.c.kept.AddCalls(ctx, in.spec.Name, b)
}

// RenewKeys reads the keys of models again and passes them to a running box, whose later requests use them. It does nothing
// for another sandbox.
func (sb *Sandbox) RenewKeys(ctx context.Context) error {
	in, s := sb.in, sb.Spec()
	if s.Runtime != RuntimeBox || s.Box == nil || in.c.secrets == nil {
		return nil
	}
	got, err := in.c.secrets(ctx, s)
	if err != nil {
		return err
	}
	keys := map[string]string{}
	for _, r := range s.Box.Gateway.Routes {
		for _, name := range r.Keys {
			if v := got.Values[name]; v != "" {
				keys[name] = v
			}
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return in.useAsItIs(ctx, func(c *wireclient.Client) error { return c.SetKeys(ctx, keys) })
}
