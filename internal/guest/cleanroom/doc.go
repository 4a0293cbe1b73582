// Package cleanroom makes places in the box that hold nothing the agent wrote, for checks whose outcome it must not have prepared.
//
// A room is a mount namespace and a namespace for shared memory in which every folder and file that the agent's side can write to is
// replaced by a fresh one, with what the image had there. Which those are is not a list: the kernel's own rule decides, owner and mode of
// each entry that the agent's users can reach, on whatever file system it lies (an image's VOLUME is one of its own). Entries that they cannot write to
// now were closed to them before, since they can neither give a file away nor take root's permissions.
//
// A room takes memory and disk from the next one. So it is removed when its side has ended, and none is made where
// what the agent left takes half of what was free when the task began.
//
// Processes and the inner engine are not this package's: the caller ends the ones and renews the other.
package cleanroom

import (
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Config says whose writes count and where rooms lie.
type Config struct {
	// Root is the file system that is looked at, "/" in a box.
	Root string
	// Dir holds the rooms and copies of what the image has, where that is little; it is made, for root alone.
	Dir string
	// Apart are folders that the caller makes new by other means, the inner engine's: a room does not have them.
	Apart []string
	// Hidden are folders that a room does not have: what the agent said, or brought to the remote, is in them.
	Hidden []string
	// Task is the folder of the task itself: whatever it has, a room begins with an empty one.
	Task string
	// Mine reports whether a user or group is one that code of the task can run as, root in inner containers included.
	Mine func(uid, gid uint32) (user, group bool)
}

// Room is one place.
type Room struct {
	// Place is for proc.Credential.
	Place *proc.Place
	// Lies says where a folder of the room lies outside of it.
	Lies map[string]string
	// Lost says of which places the room lacks what the image had there, for a human.
	Lost []string

	dir string
}

// Outside is where a path of the room lies for everybody else. A path that the room shares is itself.
func (r *Room) Outside(path string) string {
	best := ""
	for p := range r.Lies {
		if (path == p || strings.HasPrefix(path, p+"/")) && len(p) > len(best) {
			best = p
		}
	}
	if best == "" {
		return path
	}
	return filepath.Join(r.Lies[best], strings.TrimPrefix(path, best))
}
