package doctor

import (
	"slices"
	"testing"
)

// What root in a box could mount is read before what the probe prints itself.
func TestMountable(t *testing.T) {
	t.Parallel()
	known, rest := mountable("nodev\tsysfs\nnodev\tdebugfs\n\text4\nnodev\tbpf\nno cgroup namespace\n")
	if !slices.Equal(known, []string{"debugfs", "bpf"}) || rest != "no cgroup namespace\n" {
		t.Errorf("%q, %q", known, rest)
	}
}
