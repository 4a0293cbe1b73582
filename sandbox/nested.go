package sandbox

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
)

// Nested is a nested sandbox. The outer sandbox's Spec has Nested. The nested sandbox has the same image and shares its
// limits, with its own files, processes, shared memory and loopback. Its end discards them all. Methods are those of a
// Sandbox and may be called concurrently.
type Nested struct {
	l  *wireclient.Nested
	in *instance
}

// nestedEndTime bounds the end of a nested sandbox: the guest answers within five seconds.
const nestedEndTime = 15 * time.Second

// NewNested creates a nested sandbox in some milliseconds. It ends with End, with this program or with the connection. A
// sandbox that cannot nest returns ErrUnsupported.
func (sb *Sandbox) NewNested(ctx context.Context) (*Nested, error) {
	n, err := query(ctx, sb.in, func(c *wireclient.Client) (*wireclient.Nested, error) { return c.NewNested(ctx) })
	if err != nil {
		return nil, err
	}
	spec := sb.Spec()
	spec.Lifetime = LifetimeEphemeral // never restarted and not in the history
	r, _ := sb.in.at()
	if spec.proxied() {
		go serveProxy(ctx, n.Client, spec.Allow)
	}
	return &Nested{n, &instance{c: sb.in.c, r: r, spec: spec, conn: connection{client: n.Client}}}, nil
}

// End ends the nested sandbox and all its processes. After an error remains may be left: remove the outer sandbox.
func (n *Nested) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nestedEndTime)
	defer cancel()
	return public(n.l.End(ctx))
}

// Run is Sandbox.Run.
func (n *Nested) Run(ctx context.Context, c Command) (RunResult, error) { return n.in.run(ctx, c) }

// Start is Sandbox.Start.
func (n *Nested) Start(ctx context.Context, c Command) (*Process, error) { return n.in.start(ctx, c) }

// OpenSession is Sandbox.OpenSession.
func (n *Nested) OpenSession(ctx context.Context, o SessionOptions) (*Session, error) {
	return openSession(ctx, n.in, o)
}

// Files returns access to the files of the nested sandbox.
func (n *Nested) Files() *Files { return &Files{n.in} }

// Endpoints returns access to the ports of the nested sandbox.
func (n *Nested) Endpoints() *Endpoints { return &Endpoints{n.in} }
