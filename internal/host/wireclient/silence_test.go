package wireclient

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// A guest that says nothing, as that of a paused sandbox, is not waited for beyond a command's timeout: neither before the command has begun nor after.
func TestSilentGuest(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]bool{"before it begins": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			protocols := &http.Protocols{}
			protocols.SetUnencryptedHTTP2(true)
			mux := http.NewServeMux()
			mux.HandleFunc("GET "+wire.PathHello, func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(wire.Hello{Version: wire.Version})
			})
			mux.HandleFunc("POST "+wire.PathExec, func(w http.ResponseWriter, r *http.Request) {
				if begins {
					f, _ := wire.DocumentFrame(wire.FrameStarted, wire.Started{ID: "A"})
					_, _ = w.Write(f)
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})
			s := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: time.Minute}
			go func() { _ = s.Serve(l) }()
			t.Cleanup(func() { _ = s.Close() })
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			c, err := New(t.Context(), conn)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p, err := c.Start(ctx, wire.Command{Argv: []string{"true"}, TimeoutMS: 1}, nil)
			if begins && err == nil {
				_, err = p.Follow(ctx, nil, nil, nil)
			}
			if !errors.Is(err, ErrLate) || !errors.Is(err, ErrConnectionLost) {
				t.Errorf("got %v", err)
			}
		})
	}
}
