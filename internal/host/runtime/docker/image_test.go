package docker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// TestEnsureImage pulls a missing image once, and reports what the registry refuses.
func TestEnsureImage(t *testing.T) {
	t.Parallel()
	pulled, refused := 0, false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			w.Header().Set("API-Version", "1.41")
		case strings.HasSuffix(r.URL.Path, "/images/create") && refused:
			_, _ = w.Write([]byte(`{"error":"denied"}`))
		case strings.HasSuffix(r.URL.Path, "/images/create"):
			pulled++
			_, _ = w.Write([]byte(`{"status":"Pulling fs layer","id":"a"}` + "\n" + `{"status":"Status: Downloaded"}`))
		case pulled > 0 && !refused:
			_, _ = w.Write([]byte(`{"Id":"sha256:1"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"message":"No such image"}`))
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
	var images runtime.ImageEnsurer = &Sandboxes{e}
	lines := 0
	for range 2 {
		if err := images.EnsureImage(t.Context(), "debian", nil, func(string) { lines++ }); err != nil {
			t.Fatal(err)
		}
	}
	if pulled != 1 || lines != 2 {
		t.Errorf("pulled %d times, %d lines", pulled, lines)
	}
	refused = true
	if err := images.EnsureImage(t.Context(), "debian", nil, func(string) {}); err == nil {
		t.Error("a refused image is no error")
	}
}
