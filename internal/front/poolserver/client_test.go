package poolserver_test

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/front/poolserver"
)

// A server of an older program refuses fields that it does not know, and never streams.
func TestExecToOfAnOlderServer(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			Argv []string `json:"argv"`
		}
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"exit_code": 3, "stdout": strings.Join(e.Argv, " "), "stderr_base64": []byte{0xff}})
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	var stdout, stderr strings.Builder
	r, err := poolserver.Dial(socket).ExecTo(t.Context(), "L-a", poolserver.ExecRequest{Argv: []string{"a", "b"}}, &stdout, &stderr)
	if err != nil || r.ExitCode != 3 || len(r.Output())+len(r.Errors()) > 0 || stdout.String() != "a b" || stderr.String() != "\xff" {
		t.Errorf("%+v, %q, %q, %v", r, stdout.String(), stderr.String(), err)
	}
}
