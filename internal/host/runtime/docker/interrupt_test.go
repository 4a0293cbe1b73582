package docker

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// An engine finishes what it was asked for when the asker is gone: the box of a
// start that is interrupted has to be removed, and for that its id be known.
func TestInterruptedStartLeavesNoBox(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var removed atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/create"):
			interrupt()
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"Id":"made"}`))
		case r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/containers/made"):
			removed.Store(r.URL.Query().Get("v") == "1" && r.URL.Query().Get("force") == "1")
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			w.Header().Set("API-Version", "1.41")
		default:
			http.Error(w, "{}", http.StatusInternalServerError)
		}
	}))
	defer srv.Close()
	e, err := New(func(name string) string {
		if name == "DOCKER_HOST" {
			return "tcp://" + srv.Listener.Addr().String()
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Run(ctx, runtime.ContainerSpec{Image: "x", Isolation: workorder.IsolationConfined}, strings.NewReader("{}")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the interruption", err)
	}
	if !removed.Load() {
		t.Error("the box was not removed with its volumes")
	}
}
