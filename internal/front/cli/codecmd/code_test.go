package codecmd

import (
	"slices"
	"testing"
)

// Until the previous release --env named the preset; a value with a variable's name before = is a variable now.
func TestPresetIn(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		env       []string
		preset    string
		variables []string
	}{
		{nil, "", nil},
		{[]string{"A=1", "b_2="}, "", []string{"A=1", "b_2="}},
		{[]string{"python"}, "python", nil},
		{[]string{"./a=b", "A=1"}, "./a=b", []string{"A=1"}},
	} {
		if preset, variables := presetIn(row.env); preset != row.preset || !slices.Equal(variables, row.variables) {
			t.Errorf("%q: %q, %q", row.env, preset, variables)
		}
	}
}
