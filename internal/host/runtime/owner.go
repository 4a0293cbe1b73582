package runtime

import "hash/fnv"

// unassigned is the first uid of a range that systemd, containers and distributions do not assign.
const unassigned = 0x70000000

// UIDFor returns the uid and gid for the jails of root with that name. No user of the host has them.
func UIDFor(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return unassigned + int(h.Sum32()&0x0fffffff)
}
