package wireclient

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
)

// The transport in a nested sandbox may close the stream before the guest has reported that the nested sandbox is gone.
func TestEndOutlastsTheTransport(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]error{"clean": io.EOF, "lost": io.ErrUnexpectedEOF} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, in := io.Pipe()
				out, guest := io.Pipe()
				s := &nestedStream{tunnel: tunnel{in: in, out: out, cancel: func() {}}, answer: &http.Response{}, over: make(chan struct{})}
				s.begun.Store(true)
				ended := make(chan error, 1)
				go func() { ended <- s.end(t.Context()) }()
				synctest.Wait()
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				_ = guest.CloseWithError(said)
				if err := <-ended; (err == nil) != errors.Is(said, io.EOF) || err != nil && !errors.Is(err, ErrConnectionLost) {
					t.Error(err)
				}
			})
		})
	}
}
