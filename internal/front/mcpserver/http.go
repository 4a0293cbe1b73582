package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/internal/host/loopback"
)

// Path is where a server is asked over HTTP.
const Path = "/mcp"

const (
	// maxBody bounds a request, in bytes.
	maxBody = 8 << 20
	// maxHeader bounds its header.
	maxHeader  = 64 << 10
	headerTime = 5 * time.Second
	idleTime   = 2 * time.Minute
	// clientIdle ends the session of a client that asks nothing: it may be gone. Many clients end with theirs, so it is
	// long; what costs, sessions of code, ends far earlier by itself.
	clientIdle = 4 * time.Hour
	// drainTime is what requests have to end with the server.
	drainTime = 5 * time.Second
)

// sessionHeader names a client's session.
const sessionHeader = "Mcp-Session-Id"

// Serve serves clients that show the token, until ctx ends or the listener fails. It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener, token string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h := &http.Server{
		Handler: s.handler(token), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve at %s: %w", l.Addr(), err))
		}
	})
	<-ctx.Done()
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer stop()
	s.end()
	for ss := range s.mcp.Sessions() {
		wg.Go(func() { _ = ss.Close() }) // what waits for its messages ends by that
	}
	if h.Shutdown(drain) != nil {
		_ = h.Close() // a request that did not end is cut
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wg.Wait()
		s.work.Wait()
	}()
	select {
	case <-ended:
	case <-drain.Done(): // the caller removes what they have
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// handler passes requests that show the token and are no web page's. That the server is meant (Host) is looked at by the SDK.
func (s *Server) handler(token string) http.Handler {
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp }, &mcp.StreamableHTTPOptions{
		SessionTimeout: clientIdle, MaxRequestBodyBytes: maxBody, Logger: s.o.Log,
	})
	mux := http.NewServeMux()
	mux.HandleFunc(Path, func(w http.ResponseWriter, r *http.Request) {
		switch origin := r.Header.Get("Origin"); {
		case origin != "" && origin != "http://"+r.Host:
			loopback.Refuse(w)
			http.Error(w, "requests of web pages are not taken", http.StatusForbidden)
			return
		case !loopback.Shows(w, r, token):
			http.Error(w, "the request needs the token of the server: Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodDelete {
			s.leave(r.Header.Get(sessionHeader)) // the SDK would wait for its calls
		}
		h.ServeHTTP(w, r)
	})
	return mux
}
