package docker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestGateway: Docker calls the network of boxes "bridge", podman "podman"; some engines list no gateway.
func TestGateway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ network, answer, want string }{
		"docker":        {"bridge", `{"IPAM":{"Config":[{"Subnet":"fd00::/64","Gateway":"fd00::1"},{"Subnet":"172.17.0.0/16","Gateway":"172.17.0.1"}]}}`, "172.17.0.1"},
		"not listed":    {"bridge", `{"IPAM":{"Config":[{"Subnet":"172.18.0.0/16"}]}}`, "172.18.0.1"},
		"podman":        {"podman", `{"IPAM":{"Config":[{"Subnet":"10.88.0.0/16","Gateway":"10.88.0.1"}]}}`, "10.88.0.1"},
		"neither":       {"other", `{}`, ""},
		"no IPv4 there": {"bridge", `{"IPAM":{"Config":[{"Subnet":"fd00::/64"}]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Api-Version", "1.41")
				switch {
				case strings.HasSuffix(r.URL.Path, "/_ping"):
				case strings.HasSuffix(r.URL.Path, "/networks/"+c.network):
					_, _ = w.Write([]byte(c.answer))
				default:
					w.WriteHeader(http.StatusNotFound)
					_, _ = w.Write([]byte(`{"message":"no such network"}`))
				}
			}))
			defer srv.Close()
			e, err := New(func(name string) string {
				return map[string]string{"DOCKER_HOST": "tcp://" + srv.Listener.Addr().String()}[name]
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := e.gateway(t.Context()); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
