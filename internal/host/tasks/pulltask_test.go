package tasks

import "testing"

func TestBranchTask(t *testing.T) {
	t.Parallel()
	for branch, want := range map[string]string{
		"agent/T-A1B2C3D4": "T-A1B2C3D4", "agent/T-A1B2C3D4-add-it": "T-A1B2C3D4",
		"main": "", "agent/": "", "agent/T-A1B2": "", "agent/T-a1b2c3d4": "", "agent/T-A1B2C3D4E": "", "agent/T-A1B2C3D4/x": "",
		"x/agent/T-A1B2C3D4": "", "agent/T-A1B2C3D4-a..b": "", "agent/T-A1B2C3D4-\n": "",
	} {
		if got, ok := branchTask(branch); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v", branch, got, ok)
		}
	}
}
