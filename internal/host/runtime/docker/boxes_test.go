package docker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// With a full disk an engine lists a container as running that has ended.
func TestListedStateIsNotTrusted(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			_, _ = w.Write([]byte(`[{"Id":"ended","State":"running","Status":"Up 3 hours"},{"Id":"gone","State":"running"},{"Id":"alive","State":"running","Status":"Up"}]`))
		case strings.HasSuffix(r.URL.Path, "/containers/ended/json"):
			_, _ = w.Write([]byte(`{"Id":"ended","State":{"Status":"exited","ExitCode":5}}`))
		case strings.HasSuffix(r.URL.Path, "/containers/alive/json"):
			_, _ = w.Write([]byte(`{"Id":"alive","State":{"Status":"running","Running":true}}`))
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
	boxes, err := e.Instances(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(boxes) != 2 || boxes[0].Running() || boxes[0].Status != "exited (5)" || !boxes[1].Running() || boxes[1].Status != "Up" {
		t.Errorf("got %+v", boxes)
	}
}
