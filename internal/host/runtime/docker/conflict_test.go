package docker

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A name that is taken is told apart, and nobody is advised to remove the other box.
func TestNameIsTaken(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/_ping") {
			w.Header().Set("API-Version", "1.41")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"message":"Conflict. The container name is in use. You have to remove (or rename) that container."}`))
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
	spec := runtime.ContainerSpec{Name: "box", Image: "x", Isolation: workorder.IsolationPrivileged}
	if _, err := e.Run(t.Context(), spec, strings.NewReader("")); !errors.Is(err, runtime.ErrConflict) || strings.Contains(err.Error(), "remove") {
		t.Errorf("%v", err)
	}
}
