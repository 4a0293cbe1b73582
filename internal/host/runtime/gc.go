package runtime

import "time"

// NeverStarted is the age at which a command that created a box, a volume or an image, and did not use it, has surely died.
const NeverStarted = 5 * time.Minute

// Leftover reports whether a box that no record requires is to be removed: it has ended, or its command died before it was started.
func (b Instance) Leftover(now time.Time) bool {
	return !b.Running() && (b.State != "created" || now.Sub(b.Created) >= NeverStarted)
}

// GCKind is a kind of garbage collection, as reports name it.
type GCKind string

// The kinds for tasks and images.
const (
	GCCollect      GCKind = "collect"       // the result of a box, and remove the box
	GCMend         GCKind = "mend"          // the record of a task whose output a dead command was moving
	GCRemoveBox    GCKind = "remove box"    // one that has ended and is not kept
	GCEndCompanion GCKind = "end companion" // that of a task that is over
	GCRemoveVolume GCKind = "remove volume" // without a container
	GCRemoveImage  GCKind = "remove image"
)

// The kinds for standalone sandboxes and artifacts.
const (
	GCRemoveSandbox   GCKind = "remove sandbox" // never started, or a session that has ended
	GCWriteRecord     GCKind = "keep record"
	GCForgetSandbox   GCKind = "forget sandbox" // its container was removed; needs force
	GCCloseEndpoints  GCKind = "end endpoints"  // of an unknown sandbox
	GCRemoveForkImage GCKind = "remove image of fork"
	GCRemoveRoot      GCKind = "remove root folder" // of a removed artifact
)

// GCAction is an action that was carried out, or with a dry run would be.
type GCAction struct {
	Action GCKind `json:"action"`
	Target string `json:"target"`
	Error  string `json:"error,omitempty"`
	// NeedsForce reports that the action is carried out only when the user insists.
	NeedsForce bool `json:"needs_force,omitempty"`
}
