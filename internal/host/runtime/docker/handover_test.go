package docker

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The box has its order and works, and the engine keeps the order's stream open.
func TestStreamThatStaysOpenHoldsNothingUp(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	read := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/create"):
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"Id":"made"}`))
		case strings.HasSuffix(r.URL.Path, "/attach"):
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
			b, _ := io.ReadAll(buf)
			read <- string(b)
			<-release
		case strings.HasSuffix(r.URL.Path, "/start"):
			w.WriteHeader(http.StatusNoContent)
		case strings.HasSuffix(r.URL.Path, "/logs"):
			_, _ = fmt.Fprintln(stdcopy.NewStdWriter(w, stdcopy.Stdout), `{"seq":1,"type":"ready"}`)
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			w.Header().Set("API-Version", "1.41")
		default:
			http.Error(w, "{}", http.StatusInternalServerError)
		}
	}))
	defer srv.Close()
	defer close(release)
	e, err := New(func(name string) string {
		if name == "DOCKER_HOST" {
			return "tcp://" + srv.Listener.Addr().String()
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a hang, not a measure
	defer cancel()
	id, err := e.Run(ctx, runtime.ContainerSpec{Image: "x", Isolation: workorder.IsolationConfined}, strings.NewReader("{}"))
	if err != nil || id != "made" || ctx.Err() != nil {
		t.Errorf("got %q, %v, %v", id, err, ctx.Err())
	}
	if got := <-read; got != "{}" {
		t.Errorf("the box got %q", got)
	}
}
