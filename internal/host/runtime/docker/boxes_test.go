package docker

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// With a full disk an engine lists a container as running that has ended.
func TestListedStateIsNotTrusted(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			_, _ = w.Write([]byte(`[{"Id":"ended","State":"running","Status":"Up 3 hours"},{"Id":"gone","State":"running"},{"Id":"alive","State":"running","Status":"Up"},` +
				`{"Id":"busy","State":"running","Status":"Up"}]`))
		case strings.HasSuffix(r.URL.Path, "/containers/ended/json"):
			_, _ = w.Write([]byte(`{"Id":"ended","State":{"Status":"exited","ExitCode":5}}`))
		case strings.HasSuffix(r.URL.Path, "/containers/alive/json"):
			_, _ = w.Write([]byte(`{"Id":"alive","State":{"Status":"running","Running":true}}`))
		case strings.HasSuffix(r.URL.Path, "/containers/busy/json"): // the engine does not answer about it alone
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/archive"):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(`{"message":"RWLayer of container 1 is unexpectedly nil"}`))
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			w.Header().Set("API-Version", "1.41")
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"message":"No such container"}`))
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
	e.refreshTime = 2 * time.Second
	boxes, err := e.Instances(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(boxes) != 3 || boxes[0].Running() || boxes[0].Status != "exited (5)" || !boxes[1].Running() || boxes[1].Status != "Up" || !boxes[2].Running() {
		t.Errorf("got %+v", boxes)
	}
	// That it is being removed is no answer of the kind that the engine is damaged.
	if _, err := e.CopyOut(t.Context(), "removed", "/x"); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
