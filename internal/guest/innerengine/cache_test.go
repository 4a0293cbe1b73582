package innerengine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Each request has one answer, one that cannot be carried out included.
func TestRefusedRequestIsAnswered(t *testing.T) {
	t.Parallel()
	good := fmt.Sprintf(`{"version":%d}`, workorder.Version) + "\n"
	for name, c := range map[string]struct{ verb, request string }{
		"no request":      {workorder.CacheList, ""},
		"no JSON":         {workorder.CacheList, "list\n"},
		"another version": {workorder.CacheList, `{"version":0}` + "\n"},
		"another verb":    {"burn", good},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			code := ServeCache(t.Context(), slog.New(slog.DiscardHandler), c.verb, strings.NewReader(c.request), &out)
			var line workorder.CacheLine
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			if code != workorder.ExitGeneral || line.Type != workorder.EventCacheReport || line.Status != "error" || line.Text == "" || line.Seq != 1 {
				t.Errorf("exit code %d, %+v", code, line)
			}
		})
	}
}
