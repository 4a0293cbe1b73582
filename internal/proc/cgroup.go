package proc

// Cgroup is an existing control group that children begin in. They cannot leave it without root.
type Cgroup struct {
	V1      []string // directories of the group, one per hierarchy of version 1
	Unified string   // its directory in the hierarchy of version 2; "" if there is none
}
