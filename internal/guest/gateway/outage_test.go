package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestUnreachable: a server that cannot be reached is tried twice, named with the cause, and the client told
// not to try again. One that is there at the second try is a blip.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	for name, host := range map[string]string{"refused": nobody, "no such name": "models.invalid"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { message(w, anyUsage) }, func(c *ModelsConfig) {
				c.Gateway.Routes[0].BaseURL = "http://" + host
				c.limits = limits{answer: answerTime, write: writeTime, room: roomTime, held: maxHeld, again: time.Nanosecond}
			})
			var dials atomic.Int32
			tr, ok := b.client.(*http.Transport)
			if !ok {
				t.Fatal("not the transport")
			}
			plain := tr.DialContext
			tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return plain(ctx, network, addr)
			}
			if why, n := b.Unreachable(); why != "" || n != 0 {
				t.Errorf("before any call: %q, %d", why, n)
			}
			status, got, h := b.post(messagesPath, `{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[]}`)
			if status != http.StatusBadGateway || !strings.Contains(got, host) || h.Get("X-Should-Retry") != "false" || dials.Load() != 2 {
				t.Errorf("%d %s %v, %d tries", status, got, h, dials.Load())
			}
			if why, n := b.Unreachable(); !strings.Contains(why, host) || n != 1 {
				t.Errorf("unreachable: %q, %d", why, n)
			}
			// The other API has a server that answers: the agent may use that one.
			status, got, _ = b.post(chatPath, `{"model":"gpt-5","messages":[]}`)
			if why, _ := b.Unreachable(); status != http.StatusOK || why != "" {
				t.Errorf("%d %s, unreachable: %q", status, got, why)
			}
		})
	}
}

func TestShortOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { message(w, anyUsage) }, func(c *ModelsConfig) {
		c.limits = limits{answer: answerTime, write: writeTime, room: roomTime, held: maxHeld, again: time.Nanosecond}
	})
	tr, ok := b.client.(*http.Transport)
	if !ok {
		t.Fatal("not the transport")
	}
	plain := tr.DialContext
	var dials atomic.Int32
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("network is unreachable")}
		}
		return plain(ctx, network, addr)
	}
	status, got, _ := b.post(messagesPath, `{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[]}`)
	if why, _ := b.Unreachable(); status != http.StatusOK || b.requests() != 1 || why != "" || !strings.Contains(b.bodies[0], "claude-sonnet-4-5") {
		t.Errorf("%d %s, %d requests, unreachable: %q", status, got, b.requests(), why)
	}
	// A server that was reached once passes through an outage: the agent's program tries again by itself.
	tr.CloseIdleConnections()
	tr.DialContext = func(_ context.Context, network, _ string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("network is unreachable")}
	}
	status, got, h := b.post(messagesPath, `{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[]}`)
	if why, n := b.Unreachable(); status != http.StatusBadGateway || h.Get("X-Should-Retry") == "false" || why != "" || n != 0 {
		t.Errorf("%d %s %v, unreachable: %q, %d", status, got, h, why, n)
	}
}
