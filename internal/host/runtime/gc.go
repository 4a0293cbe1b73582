package runtime

import "time"

// NeverStarted is the age at which the command that created an unused box, volume or image must have died.
const NeverStarted = 5 * time.Minute

// Leftover reports whether a box that no record needs can be removed: it has ended, or was never started.
func (b Instance) Leftover(now time.Time) bool {
	return !b.Running() && (b.State != "created" || now.Sub(b.Created) >= NeverStarted)
}

// GCKind is a kind of action of gc.
type GCKind string

// Actions for tasks and their leftovers.
const (
	GCCollect      GCKind = "collect"       // the result of a box, and remove the box
	GCMend         GCKind = "mend"          // the record of a task whose output a killed command was moving
	GCRemoveBox    GCKind = "remove box"    // an ended box that is not kept
	GCForgetTask   GCKind = "forget task"   // one that never began
	GCEndCompanion GCKind = "end companion" // of an ended task
	GCRemoveFiles  GCKind = "remove files"  // of a killed command
	GCRemoveVolume GCKind = "remove volume" // without a container
	GCRemoveImage  GCKind = "remove image"
)

// Actions for standalone sandboxes.
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
	Action     GCKind `json:"action"`
	Target     string `json:"target"`
	Error      string `json:"error,omitempty"`
	NeedsForce bool   `json:"needs_force,omitempty"` // skipped without force
}
