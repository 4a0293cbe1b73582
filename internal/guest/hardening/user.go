package hardening

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// User returns a user of the image with only its own group, in a control group; nil means the caller's.
func User(name string, group *proc.Cgroup) (*proc.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("this image has no user %s: %w", name, err)
	}
	uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(uerr, gerr); err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	return &proc.Credential{UID: uint32(uid), GID: uint32(gid), Groups: []uint32{uint32(gid)}, Cgroup: group}, nil
}
