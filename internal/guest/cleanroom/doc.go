// Package cleanroom creates rooms in the box without any file the agent wrote, for checks that the agent must
// not be able to prepare.
//
// A room is a mount namespace and an IPC namespace. Every directory and file that the agent's side can write
// to is replaced in it by a fresh one with the image's content. There is no list of these places: the
// kernel's rule decides, by owner and mode of each entry that the agent's users can reach, on any file system
// (an image's VOLUME has its own). Entries that they cannot write now were never writable for them, because
// they can neither give a file away nor remove root's permissions.
//
// A room leaves less memory and disk space for the next one. So it is removed when its side has ended, and
// none is created if the agent's files use half of the space that was free when the task began.
//
// This package does not handle processes and the inner engine: the caller ends the processes and renews the engine.
package cleanroom

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Config sets whose writes count and where rooms are stored.
type Config struct {
	// Root is the file system to scan, "/" in a box.
	Root string
	// Dir stores the rooms and small copies of the image's content. It is created for root only.
	Dir string
	// Excluded lists directories that the caller renews by other means, those of the inner engine: a room does not have them.
	Excluded []string
	// Hidden lists directories that a room does not have: they contain the agent's output, and its pushed commits.
	Hidden []string
	// Task is the task's own directory: it is always empty at the start of a room.
	Task string
	// Layered lists places on layers without anything of the task's code. Their content is not recorded.
	Layered []string
	// IsTaskUser reports whether the task's code can run as a user or group, including root in inner containers.
	IsTaskUser func(uid, gid uint32) (user, group bool)
}

// Room is one room.
type Room struct {
	// Namespace is for proc.Credential.
	Namespace *proc.Namespace
	// HostPaths maps directories of the room to their paths outside of it.
	HostPaths map[string]string
	// Missing names the places whose image content the room lacks, for the user.
	Missing []string

	dir    string
	remove []func(context.Context) error // releases what is stored elsewhere
}

// LayerFunc creates a new layered place with only its layers. remove deletes it. ok is false if the place has no
// layers for this room.
type LayerFunc func(path string) (at string, remove func(context.Context) error, ok bool, err error)

// Outside returns the path outside the room for a path inside. A shared path stays the same.
func (r *Room) Outside(path string) string {
	best := ""
	for p := range r.HostPaths {
		if (path == p || strings.HasPrefix(path, p+"/")) && len(p) > len(best) {
			best = p
		}
	}
	if best == "" {
		return path
	}
	return filepath.Join(r.HostPaths[best], strings.TrimPrefix(path, best))
}
