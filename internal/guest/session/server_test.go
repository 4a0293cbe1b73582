package session

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// A client that takes nothing does not keep a cell.
func TestClientThatTakesNothing(t *testing.T) {
	t.Parallel()
	done := make(chan bool, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f := &frameWriter{w: w, rc: http.NewResponseController(w), patience: 50 * time.Millisecond}
		for range 1 << 10 {
			f.Print(wire.FrameStdout, make([]byte, 1<<20))
		}
		done <- f.gone
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	defer tr.CloseIdleConnections()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := (&http.Client{Transport: tr}).Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if !<-done {
		t.Error("it was not let go")
	}
}
