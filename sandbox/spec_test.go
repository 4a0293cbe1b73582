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
		Network: NetworkRestricted, Allow: []string{"h"}, Title: "t", Repo: "/r", Ref: "main", Box: &BoxSpec{}, Project: "p",
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

// A box's configuration in labels of older versions is a part of a work order: the fields of BoxSpec have the same names,
// and only fields that Spec has, or that a start sets, are missing.
func TestBoxSpecJSON(t *testing.T) {
	t.Parallel()
	var order workorder.BoxSpec
	fill(reflect.ValueOf(&order).Elem())
	doc, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	var box BoxSpec
	if err := json.Unmarshal(doc, &box); err != nil {
		t.Fatal(err)
	}
	got, err := box.order()
	if err != nil {
		t.Fatal(err)
	}
	want := order
	want.Image, want.ImageID, want.OCIRuntime, want.SetupCache, want.HostImages, want.MTU = "", "", "", "", nil, 0
	want.Network.Mode, want.Limits = "", workorder.Limits{DiskBytes: order.Limits.DiskBytes}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if none, err := (*BoxSpec)(nil).order(); err != nil || !reflect.DeepEqual(none, workorder.BoxSpec{}) {
		t.Errorf("none: %+v, %v", none, err)
	}
}

// fill sets all of a value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		of := reflect.New(v.Type().Elem()).Elem()
		fill(of)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), of)
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	default:
		panic(v.Kind())
	}
}
