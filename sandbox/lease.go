package sandbox

import (
	"context"
	"net"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
)

// Lease is one clean turn in a sandbox whose Spec has Leases: it has the sandbox's image and limits, and files, processes, shared memory and a loopback of its own. Nothing of it is left
// when it has ended. Its methods are those of a Sandbox, and may be called concurrently.
type Lease struct {
	l  *wireclient.Lease
	in *Sandbox
}

// leaseTime bounds the end of a lease: the guest says within five seconds whether all has ended.
const leaseTime = 15 * time.Second

// Lease makes a lease, in some milliseconds. Leases of one sandbox share its limits. One is ended by End, and by the end of this program or of the connection at the latest. A sandbox
// that cannot make any says so with ErrUnsupported.
func (sb *Sandbox) Lease(ctx context.Context) (*Lease, error) {
	var l *wireclient.Lease
	err := sb.use(ctx, func(c *wireclient.Client) (err error) {
		l, err = c.Lease(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	spec := sb.Spec()
	spec.Lifetime = Session // it is not started again, and in no history
	r, _ := sb.at()
	return &Lease{l, &Sandbox{m: sb.m, r: r, spec: spec, c: l.Client}}, nil
}

// End ends the lease with all that runs in it. After an error something of it may be left: the sandbox is not clean, and to be removed.
func (l *Lease) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	return public(l.l.End(ctx))
}

// Run is Sandbox.Run.
func (l *Lease) Run(ctx context.Context, c Command) (Result, error) { return l.in.Run(ctx, c) }

// Start is Sandbox.Start.
func (l *Lease) Start(ctx context.Context, c Command) (*Process, error) { return l.in.Start(ctx, c) }

// Files are those of the lease.
func (l *Lease) Files() *Files { return l.in.Files() }

// Dial is Sandbox.Dial.
func (l *Lease) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return l.in.Dial(ctx, network, address)
}
