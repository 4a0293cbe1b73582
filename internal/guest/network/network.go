// Package network puts the network policy and the model gateway in force, tells the task of them and says in the result what they did.
package network

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

// Task is told where the gateway is.
type Task interface {
	Setenv(name, value string)
}

// Network is the network policy and the model gateway as boot.Network.
type Network struct {
	Policy *egress.Egress
	Hosts  *TrustedHosts
	Order  *workorder.Order
	Task   Task
	Models *gateway.Models // nil means the order has no routes
	Audit  io.Closer       // of Models
	Guard  *guard.Guard
	Log    *slog.Logger
}

// NewModels makes the gateway of the order's routes and its log in the folder logs; nil when there are none.
func NewModels(log *slog.Logger, env *workorder.Envelope, logs string, emit func(workorder.Event)) (*gateway.Models, io.Closer, error) {
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
func (n *Network) Up(ctx context.Context) error {
	if err := n.Policy.Up(ctx); err != nil {
		return fmt.Errorf("put the network policy in force: %w", err)
	}
	n.Hosts.start(ctx, n.Policy)
	if n.Models == nil {
		return nil
	}
	if err := n.Models.Start(ctx); err != nil {
		return fmt.Errorf("open the model gateway: %w", err)
	}
	n.Models.SetBudget(n.Order.MaxBudgetUSD) // setup may ask models, too
	for name, value := range n.Models.Env() {
		n.Task.Setenv(name, value)
		if _, own := n.Order.Env[name]; own { // the project's word on the server is the gateway's to follow
			n.Order.Env[name] = value
		}
	}
	return nil
}

// Seal holds the inner engine to the policy, too.
func (n *Network) Seal(ctx context.Context) error { return n.Policy.Seal(ctx) }

// Report is safe to call when nothing was ever in force.
func (n *Network) Report(r *workorder.Result) {
	report := n.Policy.Report()
	r.Network, r.Refusals = &report, n.Guard.Refusals()
}

// Close ends guard, gateway, resolver and proxy. The kernel's rules stay as long as the box: what still runs reaches
// nothing any more.
func (n *Network) Close() {
	n.Guard.Close()
	n.Policy.Close()
	if n.Models == nil {
		return
	}
	n.Models.Stop()
	if err := n.Audit.Close(); err != nil {
		n.Log.Warn("close the gateway's log", "error", err)
	}
}
