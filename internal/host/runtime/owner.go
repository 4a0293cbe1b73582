package runtime

import "hash/fnv"

// unassigned is the first uid without a user: systemd, containers and distributions assign lower ones.
const unassigned = 0x70000000

// UIDFor returns the uid and gid for the jails of root with that name: no user of the host has them.
func UIDFor(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // it never fails
	return unassigned + int(h.Sum32()&0x0fffffff)
}
