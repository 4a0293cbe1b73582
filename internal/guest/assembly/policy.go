package assembly

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// policyFile has the network of a box without a task that was given another one than its order's, so that it counts after a stop, too.
const policyFile = "/var/lib/sandbox-agent/network.json"

// policy is serve.Network of a box.
type policy struct {
	p   *parts
	mu  sync.Mutex
	now wire.Network
}

func networkOf(n workorder.Network) wire.Network {
	return wire.Network{Mode: string(n.Mode), Allow: n.Allow}
}

func (p *policy) InForce() wire.Network {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *policy) Set(ctx context.Context, n wire.Network) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := with(p.p.order.Network, n)
	if err := next.Check(); err != nil {
		return &wire.Error{Code: wire.CodeBadRequest, Text: err.Error()}
	}
	if err := p.p.policy.SetPolicy(ctx, next); err != nil {
		return err
	}
	p.now = networkOf(next)
	return writePolicy(p.now)
}

// with is a network with another mode and other rules.
func with(was workorder.Network, n wire.Network) workorder.Network {
	was.Mode, was.Allow = workorder.NetworkMode(n.Mode), n.Allow
	was.Learn = was.Learn && was.Mode == workorder.NetworkRestricted
	return was
}

func writePolicy(n wire.Network) error {
	b, err := json.Marshal(n)
	if err == nil {
		err = os.WriteFile(policyFile, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the network for the next start: %w", err)
	}
	return nil
}

// keptPolicy puts the network that a box was given last into its order.
func keptPolicy(o *workorder.Order) error {
	b, err := os.ReadFile(policyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var n wire.Network
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return fmt.Errorf("read the network that the sandbox was given: %w", err)
	}
	o.Network = with(o.Network, n)
	return nil
}
