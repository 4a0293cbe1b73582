package docker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A container whose processes cannot be frozen at once is tried again; another refusal is reported at once.
func TestPauseIsTriedAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := `{"message":"Cannot pause container: OCI runtime pause failed: unable to freeze: unknown"}`
		switch n := asked.Add(1); {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			asked.Store(0)
			w.Header().Set("API-Version", "1.41")
			return
		case strings.HasSuffix(r.URL.Path, "/busy/pause") && n == 3:
			w.WriteHeader(http.StatusNoContent)
			return
		case strings.HasSuffix(r.URL.Path, "/other/pause"):
			said = `{"message":"container is not running"}`
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(said))
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
	if err := e.Pause(t.Context(), "busy"); err != nil || asked.Load() != 3 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
	asked.Store(0)
	if err := e.Pause(t.Context(), "other"); err == nil || asked.Load() != 1 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}
