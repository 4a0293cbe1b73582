// Package cleanroom creates mount and IPC namespaces in which the image's content replaces every file that the agent could write.
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

// LayerFunc creates a new layered place with only its layers. remove deletes it. ok is false if it has no layers.
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
