package runtime

import "hash/fnv"

// unassigned is the first uid without a user: systemd, containers and distributions assign lower ones.
const unassigned = 0x70000000

// OwnerOf is a uid, and gid, that no user of this machine has, always the same for a name. Root's sandboxes run as it.
func OwnerOf(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // it never fails
	return unassigned + int(h.Sum32()&0x0fffffff)
}
