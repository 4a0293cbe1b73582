package innerengine

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A box does without services that were found, and not without one that somebody has asked for.
func TestForgiven(t *testing.T) {
	t.Parallel()
	o := &workorder.Order{BoxSpec: workorder.BoxSpec{Found: true, Services: []workorder.Service{{Name: "found"}, {Name: "added", Asked: true}}}}
	if !forgiven(o, []string{"found"}) || forgiven(o, []string{"added"}) || forgiven(o, []string{"found", "added"}) {
		t.Error("wrong with found services")
	}
	if o.Found = false; forgiven(o, []string{"found"}) {
		t.Error("a declared service is forgiven")
	}
}
