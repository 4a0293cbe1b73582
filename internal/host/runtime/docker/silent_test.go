package docker

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// An engine that takes up a call and never answers is one that is not there: what lists boxes does not wait for ever.
func TestSilentEngine(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's own
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	e, err := New(func(name string) string {
		return map[string]string{"DOCKER_HOST": "tcp://" + ln.Addr().String()}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	e.listTime = 50 * time.Millisecond
	if _, err := e.Boxes(t.Context(), map[string]string{workorder.LabelTask: ""}); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
