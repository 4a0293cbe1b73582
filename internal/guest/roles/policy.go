package roles

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

// policyFile stores the changed network policy of a standalone box, so that it also applies after a restart.
const policyFile = "/var/lib/sandbox-agent/network.json"

// switchTime bounds a change of the network, which continues if its client disconnects.
const switchTime = 30 * time.Second

// policyControl implements wireserver.PolicyControl for a box.
type policyControl struct {
	order workorder.NetworkPolicy
	put   func(ctx context.Context, n workorder.NetworkPolicy) error // in force
	file  string                                                     // policyFile
	mu    sync.Mutex
	now   wire.NetworkPolicy
}

func (p *parts) network() *policyControl {
	return &policyControl{order: p.order.Network, put: p.policy.SetPolicy, file: policyFile, now: networkOf(p.order.Network)}
}

func networkOf(n workorder.NetworkPolicy) wire.NetworkPolicy {
	return wire.NetworkPolicy{Mode: string(n.Mode), Allow: n.Allow}
}

func (p *policyControl) Current() wire.NetworkPolicy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *policyControl) Set(ctx context.Context, n wire.NetworkPolicy) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := with(p.order, n)
	if err := next.Check(); err != nil {
		return &wire.Error{Code: wire.CodeBadRequest, Text: err.Error()}
	}
	// First the step that can fail: a full disk must not leave a policy that a restart would undo.
	kept, err := renameio.NewPendingFile(p.file, renameio.WithTempDir(filepath.Dir(p.file)), renameio.WithPermissions(0o600))
	if err != nil {
		return fmt.Errorf("store the network policy for the next start: %w", err)
	}
	defer func() { _ = kept.Cleanup() }() // no effect once it is in place
	if err := errors.Join(json.NewEncoder(kept).Encode(networkOf(next)), kept.Sync()); err != nil {
		return fmt.Errorf("store the network policy for the next start: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), switchTime)
	defer cancel()
	if err := p.put(ctx, next); err != nil {
		return err
	}
	p.now = networkOf(next)
	if err := kept.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("store the network policy, which is already in force, for the next start: %w", err)
	}
	return nil
}

// with returns a copy of was with the mode and rules of n.
func with(was workorder.NetworkPolicy, n wire.NetworkPolicy) workorder.NetworkPolicy {
	was.Mode, was.Allow = workorder.NetworkMode(n.Mode), n.Allow
	was.Learn = was.Learn && was.Mode == workorder.NetworkRestricted
	return was
}

// restorePolicy replaces the order's network policy with the last stored one.
func restorePolicy(o *workorder.Order) error {
	b, err := os.ReadFile(policyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var n wire.NetworkPolicy
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return fmt.Errorf("read the stored network policy: %w", err)
	}
	o.Network = with(o.Network, n)
	return nil
}
