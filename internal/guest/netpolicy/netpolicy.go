// Package netpolicy applies the network policy, starts the model gateway and reports their use in the result.
package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/egress"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/gateway"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/guard"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxModelsLog bounds the gateway's audit log, in bytes: a line has some 300.
	maxModelsLog = 16 << 20
)

// Task receives the gateway's address.
type Task interface {
	Setenv(name, value string)
}

// Enforcer is the network policy and the model gateway. It implements boot.PolicyEnforcer.
type Enforcer struct {
	Policy *egress.Egress
	Hosts  *TrustedHosts
	Order  *workorder.Order
	Task   Task
	Models *gateway.Models // nil if the order has no routes
	Audit  io.Closer       // of Models
	Guard  *guard.Guard
	Log    *slog.Logger
	// InForce means that the policy was applied before the order arrived.
	InForce bool
}

// NewModels creates the gateway of the order's routes and its log in the directory logs; nil if there are no routes.
func NewModels(log *slog.Logger, env *workorder.Envelope, logs string, emit func(workorder.Event)) (*gateway.Models, io.Closer, error) {
	if len(env.Order.Gateway.Routes) == 0 {
		return nil, nil, nil
	}
	var w io.WriteCloser = discard{}
	left := maxModelsLog
	if logs != "" {
		// A restarted box has calls from before.
		f, err := os.OpenFile(filepath.Join(logs, filepath.Base(workorder.ModelCallsFile)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return nil, nil, fmt.Errorf("open the gateway's log: %w", err)
		}
		if st, err := f.Stat(); err == nil {
			left = int(max(maxModelsLog-st.Size(), 0))
		}
		w = f
	}
	m, err := gateway.NewModels(gateway.ModelsConfig{
		Gateway: env.Order.Gateway, Secrets: env.Secrets, Audit: proc.NewHead(w, left), Log: log,
		Network: env.Order.Network, Emit: emit,
	})
	if err != nil {
		return nil, nil, errors.Join(err, w.Close())
	}
	return m, w, nil
}

// discard is the log of a gateway that is only planned.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

// Up applies the policy, and passes the gateway's address to the task.
func (e *Enforcer) Up(ctx context.Context) error {
	if !e.InForce {
		if err := e.Policy.Up(ctx); err != nil {
			return fmt.Errorf("apply the network policy: %w", err)
		}
		e.Hosts.start(ctx, e.Policy)
	}
	if e.Models == nil {
		return nil
	}
	if err := e.Models.Start(ctx); err != nil {
		return fmt.Errorf("start the model gateway: %w", err)
	}
	e.Models.SetBudget(e.Order.MaxBudgetUSD) // setup may use models, too
	for name, value := range e.Models.Env() {
		e.Task.Setenv(name, value)
		if _, own := e.Order.Env[name]; own { // the gateway, not the task, uses the project's server setting
			e.Order.Env[name] = value
		}
	}
	return nil
}

// Seal applies the policy to the inner engine, too.
func (e *Enforcer) Seal(ctx context.Context) error { return e.Policy.Seal(ctx) }

// Report is safe to call if nothing was ever started.
func (e *Enforcer) Report(r *workorder.Result) {
	report := e.Policy.Report()
	r.Network, r.Refusals = &report, e.Guard.Refusals()
}

// Close ends guard, gateway, resolver and proxy. The kernel's rules stay as long as the box.
func (e *Enforcer) Close() {
	e.Guard.Close()
	e.Policy.Close()
	if e.Models == nil {
		return
	}
	e.Models.Stop()
	if err := e.Audit.Close(); err != nil {
		e.Log.Warn("close the gateway's log", "error", err)
	}
}

// resolveTime bounds the resolution of the hosts that boot talks to; without an answer the box starts anyway.
const resolveTime = 3 * time.Second

// TrustedHosts are the servers that boot talks to. An inner network with one of their addresses would hide them.
type TrustedHosts struct {
	names  []string
	done   chan struct{} // closed once prefixes are known
	ranges []netip.Prefix
}

// NewTrustedHosts returns the hosts of those names. Their addresses are resolved once the policy is in force.
func NewTrustedHosts(names []string) *TrustedHosts {
	return &TrustedHosts{names: names, done: make(chan struct{})}
}

// start resolves the addresses; it is called once, before any call of Prefixes.
func (t *TrustedHosts) start(ctx context.Context, e *egress.Egress) {
	go func() {
		defer close(t.done)
		ctx, cancel := context.WithTimeout(ctx, resolveTime)
		defer cancel()
		all := e.Resolvers()
		for _, name := range t.names {
			all = append(all, e.Resolve(ctx, name)...)
		}
		for _, a := range all {
			a = a.WithZone("")
			t.ranges = append(t.ranges, netip.PrefixFrom(a, a.BitLen()))
		}
	}()
}

// Prefixes returns their addresses. It waits for the resolver, resolveTime at most.
func (t *TrustedHosts) Prefixes() []netip.Prefix {
	<-t.done
	return t.ranges
}
