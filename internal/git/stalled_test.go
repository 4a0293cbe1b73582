package git

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A remote that takes the request and never answers is an error by itself, also
// where there is no credential.
func TestStalledRemoteIsAnError(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err := Repo{Dir: t.TempDir()}.Run(ctx, "ls-remote", "--", srv.URL+"/r.git")
	if err == nil || ctx.Err() != nil {
		t.Errorf("got %v", err)
	}
	if KindOf(err) != KindUnreachable {
		t.Errorf("it is %q", KindOf(err))
	}
}
