package app

import (
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
)

// doctor looks at the image of tasks, whatever else the engine has.
func TestTaskImages(t *testing.T) {
	t.Parallel()
	small, box, old := provision.SmallRepository+":v-1", provision.Repository+":v-2", provision.Repository+":v-1"
	got := taskImages([]provision.BuiltImage{
		{Name: small, Tags: []string{small}, Current: true},
		{Name: "mine", Tags: []string{"mine", box}, Current: true},
		{Name: old, Tags: []string{old}},
	})
	if !slices.Equal(got, []string{box}) {
		t.Errorf("%q", got)
	}
}
