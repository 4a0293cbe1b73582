package mcpserver

import (
	"errors"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

func TestInsideEnvironment(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"f": {"/workspace/f", "f"}, "d/../g": {"/workspace/g", "g"}, "/workspace/d/f": {"/workspace/d/f", "d/f"}, "../etc/passwd": {"/etc/passwd", ""}, "/etc/x": {"/etc/x", ""},
		"/workspace2/x": {"/workspace2/x", ""}, ".git/config": {"/workspace/.git/config", ""}, ".github/x": {"/workspace/.github/x", ".github/x"}, ".": {"/workspace", ""},
	} {
		if abs, tracked := inside(name); abs != want[0] || tracked != want[1] {
			t.Errorf("%s: %s, %s", name, abs, tracked)
		}
	}
}

func TestUncommitted(t *testing.T) {
	t.Parallel()
	// A commit of something else is none of a file outside, and what could not be saved is neither ignored nor as it was.
	outside, failed, same := uncommitted("/x", "", "c", false), uncommitted("/workspace/x", "x", "", true), uncommitted("/workspace/x", "x", "", false)
	if outside == "" || outside != uncommitted("/x", "", "", true) || failed == "" || failed == same || same == "" || uncommitted("/workspace/x", "x", "c", false) != "" {
		t.Errorf("%s, %s, %s", outside, failed, same)
	}
}

// An agent narrows what an environment reaches, and never widens it; what it does not name stays.
func TestChangedSpec(t *testing.T) {
	t.Parallel()
	one := "1"
	box := &sandbox.BoxSpec{Env: map[string]string{"P": "p", "Q": "q"}, Setup: []string{"old"}, Services: []sandbox.Service{{Name: "db", Ports: []string{"5432:5432"}}}, Network: sandbox.BoxNetwork{Allow: []string{"a.example"}}}
	full := sandbox.Spec{Runtime: sandbox.RuntimeBox, Network: sandbox.NetworkFull, Env: []string{"A=0", "AB=2"}, Box: box}
	kept := full
	kept.Box = &sandbox.BoxSpec{SecretNames: []string{"K"}}
	held := full
	held.Network, held.Allow = sandbox.NetworkRestricted, []string{"b.example"}
	jail := sandbox.Spec{Runtime: sandbox.RuntimeJail, Network: sandbox.NetworkNone}
	setup := []string{"new"}
	for name, row := range map[string]struct {
		of    sandbox.Spec
		by    SandboxConfig
		wrong bool
		right func(s sandbox.Spec, ports []int) bool
	}{
		"variables": {of: full, by: SandboxConfig{Env: map[string]*string{"A": &one, "P": nil}}, right: func(s sandbox.Spec, _ []int) bool {
			_, p := s.Box.Env["P"]
			return slices.Equal(s.Env, []string{"AB=2", "A=1"}) && !p && s.Box.Env["Q"] == "q" && s.Box.Setup[0] == "old"
		}},
		"setup": {of: full, by: SandboxConfig{SetupCommands: &setup}, right: func(s sandbox.Spec, _ []int) bool { return s.Box.Setup[0] == "new" && s.Box.SetupAsked }},
		"narrow": {of: full, by: SandboxConfig{Network: "restricted", Allow: []string{"c.example"}}, right: func(s sandbox.Spec, _ []int) bool {
			return s.Network == sandbox.NetworkRestricted && slices.Equal(s.Allow, []string{"c.example"}) && len(s.Box.Network.Allow) == 0
		}},
		"narrower": {of: held, by: SandboxConfig{Allow: []string{"a.example"}}, right: func(s sandbox.Spec, _ []int) bool {
			return slices.Equal(s.Allow, []string{"a.example"}) && len(s.Box.Network.Allow) == 0
		}},
		"to none": {of: held, by: SandboxConfig{Network: "none"}, right: func(s sandbox.Spec, _ []int) bool { return s.Network == sandbox.NetworkNone && s.Allow == nil }},
		"a service": {of: full, by: SandboxConfig{Service: &SandboxService{Name: "two", Image: "i", Ports: []int{5432, 80}}}, right: func(s sandbox.Spec, ports []int) bool {
			return slices.Equal(s.Box.Services[1].Ports, []string{"5432", "80:80"}) && slices.Equal(ports, []int{80}) && s.Box.Services[1].Asked && !s.Box.Services[0].Asked
		}},
		"wide":                       {of: held, by: SandboxConfig{Network: "full"}, wrong: true},
		"from none":                  {of: jail, by: SandboxConfig{Network: "restricted"}, wrong: true},
		"another host":               {of: held, by: SandboxConfig{Allow: []string{"c.example"}}, wrong: true},
		"no network":                 {of: full, by: SandboxConfig{Network: "host"}, wrong: true},
		"hosts of full":              {of: full, by: SandboxConfig{Allow: []string{"c.example"}}, wrong: true},
		"an image while held":        {of: held, by: SandboxConfig{BaseImage: "i"}, wrong: true},
		"a service while held":       {of: held, by: SandboxConfig{Service: &SandboxService{Name: "x", Image: "i"}}, wrong: true},
		"a service that is there":    {of: full, by: SandboxConfig{Service: &SandboxService{Name: "db", Image: "i"}}, wrong: true},
		"an image that gets secrets": {of: kept, by: SandboxConfig{BaseImage: "i"}, wrong: true},
		"no name":                    {of: full, by: SandboxConfig{Env: map[string]*string{"A=B": &one}}, wrong: true},
		"an empty name":              {of: full, by: SandboxConfig{Env: map[string]*string{"": nil}}, wrong: true},
		"an image":                   {of: full, by: SandboxConfig{BaseImage: "i"}, right: func(s sandbox.Spec, _ []int) bool { return s.Image == "i" }},
		"an image of a jail":         {of: jail, by: SandboxConfig{BaseImage: "i"}, wrong: true},
		"setup of a jail":            {of: jail, by: SandboxConfig{SetupCommands: &setup}, wrong: true},
	} {
		s, ports, err := changedSpec(row.of, row.by)
		if _, wrong := errors.AsType[*WrongError](err); wrong != row.wrong || err != nil && !wrong || err == nil && !row.right(s, ports) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if len(box.Services) != 1 || box.Env["P"] != "p" || len(box.Network.Allow) != 1 || full.Env[0] != "A=0" {
		t.Errorf("the spec of before has changed: %+v", box)
	}
}
