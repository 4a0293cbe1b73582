package safeopen

import "github.com/sandbox-agent/sandbox-agent/wire"

// Between the moment in which the host looks at a path and the one in which an engine mounts it, another sandbox that can write to a
// directory above may put a link in its place. Hold and Verify report whether what is mounted in a sandbox is what was looked at.

// Mount is what is to be mounted: Host, an absolute path without links, at Inside.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Held are the sources of mounts, open: neither is removed, and its number given to another, before Close.
type Held struct {
	// IDs are for Verify in the sandbox, and Kernel names the running kernel.
	IDs    []wire.MountID
	Kernel string
	// Owners are the user and group of each source.
	Owners []Owner

	fds []int
}

// Owner is the owner of a file.
type Owner struct{ UID, GID uint32 }
