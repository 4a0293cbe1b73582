package app

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// The document of up --json has the spec's fields, with durations as strings, and the endpoints.
func TestUpJSON(t *testing.T) {
	t.Parallel()
	s := sandbox.Spec{Name: "dev", Network: sandbox.NetworkNone, Lifetime: sandbox.LifetimeNamed, IdleTimeout: 30 * time.Minute}
	const spec = `{"name":"dev","network":"none","limits":{"memory_bytes":0,"cpus":0,"pids":0},"lifetime":"named","idle_timeout":"30m"`
	for want, ports := range map[string][]Port{
		spec + `}`: nil,
		spec + `,"endpoints":{"3000":"127.0.0.1:4000"}}`: {{Port: 3000, Local: 4000}},
	} {
		if got, err := json.Marshal(Upped{Spec: s, Ports: ports}); err != nil || string(got) != want {
			t.Errorf("%s, %v", got, err)
		}
	}
}
