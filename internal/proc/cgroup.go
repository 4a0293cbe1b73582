package proc

// Cgroup is a control group that children begin in: they and all that they start are counted there from the first
// instruction on, and cannot leave without root. The groups must exist.
type Cgroup struct {
	V1      []string // folders of the group, one per hierarchy of version 1
	Unified string   // its folder in the hierarchy of version 2; "" means there is none
}
