package runtime

import "hash/fnv"

// unassigned is the first of the uids that nobody has: systemd, containers and distributions assign lower ones.
const unassigned = 0x70000000

// OwnerOf is a uid, and gid, that nobody on this machine has, always the same of a name. Root's sandboxes run as it.
func OwnerOf(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // it never fails
	return unassigned + int(h.Sum32()&0x0fffffff)
}
