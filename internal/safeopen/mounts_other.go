//go:build !linux

package safeopen

import "github.com/sandbox-agent/sandbox-agent/wire"

// Hold returns nothing: sandboxes run in another kernel than this one.
func Hold([]Mount) (*Held, error) { return &Held{}, nil }

// Close does nothing.
func (h *Held) Close() {}

// Verify returns nil: sandboxes run on Linux.
func Verify([]wire.MountID, string) error { return nil }
