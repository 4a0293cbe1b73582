package assembly

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// policyFile has the network of a box without a task that was given another one than its order's, so that it counts after a stop, too.
const policyFile = "/var/lib/sandbox-agent/network.json"

// switchTime bounds a change of the network, which goes on when whoever asks for it is gone: what is in force would not be known otherwise.
const switchTime = 30 * time.Second

// policy is serve.Network of a box.
type policy struct {
	order workorder.Network
	put   func(ctx context.Context, n workorder.Network) error // in force
	file  string                                               // policyFile
	mu    sync.Mutex
	now   wire.Network
}

func (p *parts) network() *policy {
	return &policy{order: p.order.Network, put: p.policy.SetPolicy, file: policyFile, now: networkOf(p.order.Network)}
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
	next := with(p.order, n)
	if err := next.Check(); err != nil {
		return &wire.Error{Code: wire.CodeBadRequest, Text: err.Error()}
	}
	// First what can fail: a full disk must leave neither half a file nor a network that a stop would undo.
	kept, err := renameio.NewPendingFile(p.file, renameio.WithTempDir(filepath.Dir(p.file)), renameio.WithPermissions(0o600))
	if err != nil {
		return fmt.Errorf("keep the network for the next start: %w", err)
	}
	defer func() { _ = kept.Cleanup() }() // nothing, once it is in place
	if err := errors.Join(json.NewEncoder(kept).Encode(networkOf(next)), kept.Sync()); err != nil {
		return fmt.Errorf("keep the network for the next start: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), switchTime)
	defer cancel()
	if err := p.put(ctx, next); err != nil {
		return err
	}
	p.now = networkOf(next)
	if err := kept.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("keep the network, which is in force now, for the next start: %w", err)
	}
	return nil
}

// with is a network with another mode and other rules.
func with(was workorder.Network, n wire.Network) workorder.Network {
	was.Mode, was.Allow = workorder.NetworkMode(n.Mode), n.Allow
	was.Learn = was.Learn && was.Mode == workorder.NetworkRestricted
	return was
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
