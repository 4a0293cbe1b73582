package workorder

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestHostOf(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"https://git.example.com/a/b.git":    "git.example.com",
		"http://user@git.example.com:8080/a": "git.example.com",
		"ssh://git@git.example.com:2222/a":   "git.example.com",
		"git@git.example.com:a/b.git":        "git.example.com",
		"git.example.com:a":                  "git.example.com",
		"https://[2001:db8::1]:8443/a":       "2001:db8::1",
		"/srv/git/a.git":                     "",
		"./a:b":                              "",
		"http://host.docker.internal:11434":  "host.docker.internal",
		"http://192.0.2.7:4000/v1":           "192.0.2.7",
	} {
		if got := HostOf(remote); got != want {
			t.Errorf("%s: %q, not %q", remote, got, want)
		}
	}
}

func standbyOrder() Order {
	return Order{
		Version: Version, TaskID: "T-A1B2C3D4", Mode: ModeCreate, Task: "x", Harness: Harness{Name: "command"}, TimeoutMinutes: 1,
		Repo: "/srv/r", CloneURL: "https://git.example.com/r.git", TargetBranch: "agent/T-A1B2C3D4-x",
		BoxSpec: BoxSpec{
			Services: []Service{{Name: "db", Image: "postgres"}}, Env: map[string]string{"A": "1"}, SecretNames: []string{"KEY"},
			Network: NetworkPolicy{Mode: NetworkNone}, Limits: Limits{PIDs: 10},
			Gateway: Gateway{Routes: []ModelRoute{{API: "anthropic", BaseURL: "https://models.example.com/v1"}}},
		},
	}
}

// A standby takes the orders that differ in nothing that the box has been started with, and has no secret of them.
func TestStandby(t *testing.T) {
	t.Parallel()
	o := standbyOrder()
	s := o.Standby()
	s.ID = "T-B1B2C3D4"
	frame, err := s.Frame()
	if err != nil || !strings.HasPrefix(string(frame), StandbyMark) || strings.Count(string(frame), "\n") != 1 {
		t.Fatalf("%q, %v", frame, err)
	}
	if text := string(frame); strings.Contains(text, "KEY") {
		t.Errorf("%s", text)
	}
	env, err := json.Marshal(Envelope{Order: o, Secrets: map[string]string{"KEY": "value"}})
	if err != nil {
		t.Fatal(err)
	}
	in := NewInput(strings.NewReader(string(frame) + string(env) + "\n"))
	got, none, err := in.Next()
	if err != nil || none != nil || got.ID != s.ID || !got.Takes(&o) {
		t.Fatalf("%+v, %v, %v", got, none, err)
	}
	if none, e, err := in.Next(); err != nil || none != nil || e.Secrets["KEY"] != "value" {
		t.Errorf("%+v, %+v, %v", none, e, err)
	}
	for what, change := range map[string]func(*Order){
		"task":     func(o *Order) { o.Task, o.TaskID, o.Env, o.Limits.CPUs = "y", "T-C1B2C3D4", nil, 2 },
		"network":  func(o *Order) { o.Network.Mode = NetworkFull },
		"services": func(o *Order) { o.Services = nil },
		"host":     func(o *Order) { o.CloneURL = "https://other.example.com/r.git" },
		"memory":   func(o *Order) { o.Limits.MemoryBytes = 1 << 30 },
	} {
		other := standbyOrder()
		change(&other)
		if got.Takes(&other) != (what == "task") {
			t.Errorf("%s: %v", what, got.Takes(&other))
		}
	}
}
