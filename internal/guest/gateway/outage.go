package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// againTime is the pause before the second try to reach a server. By then a flapping route or a restarting
// resolver works again, and so short a wait is negligible compared to a model's answer.
const againTime = 3 * time.Second

// outage records, for each API, why its server was never reached. If a server was reached once, its address
// is right: a later outage is temporary, and the agents' programs retry by themselves.
type outage struct {
	mu       sync.Mutex
	apis     map[workorder.ModelAPI]string // "" once it was reached
	failures int
}

// reached records a connection.
func (o *outage) reached(api workorder.ModelAPI) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set(api, "")
}

// failed records two failed tries, and reports whether the server was never reached.
func (o *outage) failed(api workorder.ModelAPI, why string) (never bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if before, called := o.apis[api]; called && before == "" {
		return false
	}
	o.failures++
	o.set(api, why)
	return true
}

func (o *outage) set(api workorder.ModelAPI, why string) {
	if o.apis == nil {
		o.apis = map[workorder.ModelAPI]string{}
	}
	o.apis[api] = why
}

// Unreachable returns why no model is available: for every API that was called, two tries to connect to the
// server failed and none ever succeeded. It is empty if a server was reached, or none was called. failures
// counts the calls that failed this way.
func (m *Models) Unreachable() (why string, failures int) {
	m.outage.mu.Lock()
	defer m.outage.mu.Unlock()
	for _, w := range m.outage.apis {
		if w == "" {
			return "", m.outage.failures
		}
		why = w
	}
	return why, m.outage.failures
}

// noRoute reports whether an error means that no connection was made: the name did not resolve, there was no
// route, or nothing listened. Such a request was not sent, so it can be sent again.
func noRoute(err error) bool {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// roundTrip sends the request, and retries once if the server could not be reached. It survives a short
// interruption, and reports a longer one at once instead of letting the agent retry for minutes.
func (c *call) roundTrip(ctx context.Context, req *http.Request) (*http.Response, error) {
	resp, err := c.m.client.RoundTrip(req)
	if err == nil || !noRoute(err) || c.left() {
		return resp, err
	}
	t := time.NewTimer(c.m.limits.again)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, err
	case <-t.C:
	}
	if req.GetBody != nil {
		body, bodyErr := req.GetBody()
		if bodyErr != nil {
			return nil, err
		}
		req.Body = body
	}
	return c.m.client.RoundTrip(req)
}
