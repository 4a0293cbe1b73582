package wire_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// A guest that is no guest: each ends in an error, at once or at the client's own deadline.
func TestHostileStream(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"nothing and the end": "", "an HTTP/1 server": "HTTP/1.1 200 OK\r\n\r\n", "an engine's error": "Error response from daemon\n", "zeros": strings.Repeat("\x00", 1<<20), "noise": strings.Repeat("\xff\x01\x7f", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			go func() { _, _ = io.WriteString(theirs, says); theirs.Close() }()
			if _, err := wireclient.New(t.Context(), ours); !errors.Is(err, wireclient.ErrLost) {
				t.Errorf("%v", err)
			}
		})
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := wireclient.New(ctx, ours); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a guest that says nothing: %v", err)
	}
}

// A guest that speaks HTTP/2 and lies.
func TestHostileGuest(t *testing.T) {
	t.Parallel()
	exec := func(frames ...[]byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for _, f := range frames {
				_, _ = w.Write(f)
			}
		}
	}
	started := wire.AppendFrame(nil, wire.FrameStarted, []byte(`{"id":"x"}`))
	hello := `{"version":1}`
	for name, row := range map[string]struct {
		hello string
		exec  http.HandlerFunc
		want  error
	}{
		"another version":     {`{"version":2}`, nil, wireclient.ErrVersion},
		"no document":         {`{`, nil, wireclient.ErrLost},
		"an endless document": {`{"version":1,"dir":"` + strings.Repeat("x", wire.MaxDocument) + `"}`, nil, wireclient.ErrLost},
		"no frames":           {hello, exec(), wireclient.ErrLost},
		"no beginning":        {hello, exec(wire.AppendFrame(nil, wire.FrameStdout, []byte("x"))), wire.ErrFrame},
		"no end":              {hello, exec(started, wire.AppendFrame(nil, wire.FrameStdout, []byte("x"))), wireclient.ErrLost},
		"half a frame":        {hello, exec(started, []byte{3, 0, 0}), wireclient.ErrLost},
		"too large a frame":   {hello, exec(started, []byte{3, 255, 255, 255, 255}), wire.ErrFrame},
		"no exit in the exit": {hello, exec(started, wire.AppendFrame(nil, wire.FrameExit, []byte("7"))), wire.ErrFrame},
		"less than nothing":   {hello, exec(started, wire.LostFrame(-5)), wire.ErrFrame},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			mux.HandleFunc(wire.PathHello, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, row.hello) })
			if row.exec != nil {
				mux.HandleFunc(wire.PathExec, row.exec)
			}
			protocols := &http.Protocols{}
			protocols.SetUnencryptedHTTP2(true)
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: mux, Protocols: protocols}
			go func() { _ = s.Serve(l) }()
			defer s.Close()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			c, err := wireclient.New(t.Context(), conn)
			if err == nil {
				defer c.Close()
				var p *wireclient.Process
				if p, err = c.Start(t.Context(), sh("true"), nil); err == nil {
					_, err = p.Follow(t.Context(), nil, nil, nil)
				}
			}
			if !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
		})
	}
}
