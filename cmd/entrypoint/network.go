package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/egress"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/gateway"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/guard"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// modelsLog is the gateway's audit log, below workorder.LogsDir.
	modelsLog = "gateway.jsonl"
	// maxModelsLog bounds it, in bytes: a line is some 300 of them.
	maxModelsLog = 16 << 20
)

// policedNetwork is the network policy and the model gateway as boot.Network.
type policedNetwork struct {
	policy *egress.Egress
	hosts  *trustedHosts
	order  *workorder.Order
	task   *task
	models *gateway.Models // nil: the order has no routes
	audit  io.Closer
	guard  *guard.Guard
	log    *slog.Logger
}

// newModels makes the gateway of the order's routes; nil when there are none.
func newModels(log *slog.Logger, env *workorder.Envelope, logs string, emit func(workorder.Event)) (*gateway.Models, io.Closer, error) {
	if len(env.Order.Gateway.Routes) == 0 {
		return nil, nil, nil
	}
	var w io.WriteCloser = discard{}
	if logs != "" {
		f, err := os.Create(filepath.Join(logs, modelsLog))
		if err != nil {
			return nil, nil, fmt.Errorf("open the gateway's log: %w", err)
		}
		w = f
	}
	m, err := gateway.NewModels(gateway.ModelsConfig{
		Gateway: env.Order.Gateway, Secrets: env.Secrets, Audit: proc.NewHead(w, maxModelsLog), Log: log,
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

// Up puts the policy in force, and tells the task where the gateway is.
func (n *policedNetwork) Up(ctx context.Context) error {
	if err := n.policy.Up(ctx); err != nil {
		return fmt.Errorf("put the network policy in force: %w", err)
	}
	n.hosts.start(ctx, n.policy)
	if n.models == nil {
		return nil
	}
	if err := n.models.Start(ctx); err != nil {
		return fmt.Errorf("open the model gateway: %w", err)
	}
	n.models.SetBudget(n.order.MaxBudgetUSD) // setup may ask models, too
	for name, value := range n.models.Env() {
		n.task.Setenv(name, value)
		if _, own := n.order.Env[name]; own { // the project's word on the server is the gateway's to follow
			n.order.Env[name] = value
		}
	}
	return nil
}

// Seal holds the inner engine to the policy, too.
func (n *policedNetwork) Seal(ctx context.Context) error { return n.policy.Seal(ctx) }

// Report is safe to call when nothing was ever in force.
func (n *policedNetwork) Report(r *workorder.Result) {
	report := n.policy.Report()
	r.Network, r.Refusals = &report, n.guard.Refusals()
}

// Close ends guard, gateway, resolver and proxy. The kernel's rules stay as long as the box: what still runs reaches
// nothing any more.
func (n *policedNetwork) Close() {
	n.guard.Close()
	n.policy.Close()
	if n.models == nil {
		return
	}
	n.models.Stop()
	if err := n.audit.Close(); err != nil {
		n.log.Warn("close the gateway's log", "error", err)
	}
}
