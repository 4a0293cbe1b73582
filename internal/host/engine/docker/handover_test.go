package docker

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
)

// The engine's attach handler waits for the end of a container that runs by the
// time it looks, and for nothing when it does not run yet: which of the two it is depends on
// the engine's load. The start must not last as long as the box.
func TestStartDoesNotWaitForTheBox(t *testing.T) {
	t.Parallel()
	end, order := make(chan struct{}), make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			w.Header().Set("API-Version", "1.41")
		case strings.HasSuffix(r.URL.Path, "/containers/create"):
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"Id":"box"}`)
		case strings.HasSuffix(r.URL.Path, "/containers/box/attach"):
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = fmt.Fprint(conn, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
			b, _ := io.ReadAll(rw)
			order <- string(b)
			<-end
		case strings.HasSuffix(r.URL.Path, "/containers/box/start"):
			w.WriteHeader(http.StatusNoContent)
		default:
			http.Error(w, "{}", http.StatusInternalServerError)
		}
	}))
	defer srv.Close()
	defer close(end) // before Close, which waits for the handler
	e, err := New(func(name string) string {
		if name == "DOCKER_HOST" {
			return "tcp://" + srv.Listener.Addr().String()
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	id, err := e.Run(t.Context(), engine.BoxSpec{Image: "x", Isolation: engine.IsolationConfined}, strings.NewReader("the order"))
	if err != nil || id != "box" {
		t.Errorf("got %q, %v", id, err)
	}
	if got := <-order; got != "the order" {
		t.Errorf("the box got %q", got)
	}
}
