package sandbox

import (
	"context"
	"net"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
)

// Lease is a nested sandbox. The outer sandbox's Spec has Leases. The nested sandbox has the same image and shares its
// limits, with its own files, processes, shared memory and loopback. Its end discards them all. Methods are those of a
// Sandbox and may be called concurrently.
type Nested struct {
	l  *wireclient.Lease
	in *Sandbox
}

// leaseTime bounds the end of a lease: the guest answers within five seconds.
const leaseTime = 15 * time.Second

// Lease creates a nested sandbox in some milliseconds. It ends with End, with this program or with the connection. A
// sandbox that cannot nest returns ErrUnsupported.
func (sb *Sandbox) NewNested(ctx context.Context) (*Nested, error) {
	var l *wireclient.Lease
	err := sb.use(ctx, func(c *wireclient.Client) (err error) {
		l, err = c.Lease(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	spec := sb.Spec()
	spec.Lifetime = LifetimeEphemeral // never restarted and not in the history
	r, _ := sb.at()
	return &Nested{l, &Sandbox{m: sb.m, r: r, spec: spec, c: l.Client}}, nil
}

// End ends the nested sandbox and all its processes. After an error remains may be left: remove the outer sandbox.
func (l *Nested) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	return public(l.l.End(ctx))
}

// Run is Sandbox.Run.
func (l *Nested) Run(ctx context.Context, c Command) (RunResult, error) { return l.in.Run(ctx, c) }

// Start is Sandbox.Start.
func (l *Nested) Start(ctx context.Context, c Command) (*Process, error) { return l.in.Start(ctx, c) }

// Files accesses the files of the lease.
func (l *Nested) Files() *Files { return l.in.Files() }

// Dial is Sandbox.Dial.
func (l *Nested) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return l.in.Dial(ctx, network, address)
}
