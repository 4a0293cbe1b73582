package sandbox

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Records and labels have a spec in JSON, which programs of other versions read.
func TestSpecJSON(t *testing.T) {
	t.Parallel()
	full := Spec{
		Name: "a", Runtime: RuntimeContainer, Image: "i", User: "u", Dir: "/d", CreateDir: true, Env: []string{"A=b"},
		Network: NetworkRestricted, Allow: []string{"h"}, Title: "t", Repo: "/r", Ref: "main", Box: &workorder.BoxSpec{}, Project: "p",
		Limits: Limits{MemoryBytes: 1 << 30, CPUs: 0.5, PIDs: NoLimit}, Mounts: []Mount{{Source: "/s", Target: "/t", ReadOnly: true}},
		Nested: true, Lifetime: LifetimeEphemeral, OwnerTimeout: NoLimit, IdleTimeout: 30 * time.Minute, TTL: 36 * time.Hour,
	}
	b, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var back Spec
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, full) {
		t.Errorf("read %+v, %v", back, err)
	}
	for name, row := range map[string]struct {
		spec Spec
		want string
	}{
		"least": {
			Spec{Name: "a", Network: NetworkFull, Lifetime: LifetimeNamed},
			`{"name":"a","network":"full","limits":{"memory_bytes":0,"cpus":0,"pids":0},"lifetime":"named"}`,
		},
		"durations": {
			Spec{
				Lifetime: LifetimeEphemeral, OwnerTimeout: NoLimit, IdleTimeout: 90 * time.Second, TTL: time.Hour,
				Mounts: []Mount{{Source: "/s", Target: "/t"}},
			},
			`{"name":"","network":"","limits":{"memory_bytes":0,"cpus":0,"pids":0},"mounts":[{"source":"/s","target":"/t"}],` +
				`"lifetime":"session","owner_timeout":"-1ns","idle_timeout":"1m30s","ttl":"1h"}`,
		},
	} {
		if got, err := json.Marshal(row.spec); err != nil || string(got) != row.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	old := `{"name":"a","network":"full","lifetime":"session","silence":-1,"idle":1800000000000,"life":3600000000000,` +
		`"dir":"/d","own_dir":true,"mounts":[{"host":"/s","inside":"/t","read_only":true}]}`
	if err := json.Unmarshal([]byte(old), &back); err != nil || back.OwnerTimeout != NoLimit || back.IdleTimeout != 30*time.Minute ||
		back.TTL != time.Hour || back.Lifetime != LifetimeEphemeral || !back.CreateDir ||
		!slices.Equal(back.Mounts, []Mount{{Source: "/s", Target: "/t", ReadOnly: true}}) {
		t.Errorf("of an older version: %+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"mounts":[{"source":"/s","target":"/t","readonly":true}]}`), &back); err == nil {
		t.Error("an unknown option of a mount has no effect")
	}
}
