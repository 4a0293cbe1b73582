package save

import (
	"context"
	"strconv"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// firstTime bounds smallFirst; it is part of the minimum time of a landing.
const firstTime = workorder.LandGrace / 2

// SmallChangesRef returns the ref of the small changes; each attempt has its own.
func (sv *Saver) SmallChangesRef() string {
	return workorder.KeptRef(sv.Repos.Order.TaskID, "first-"+strconv.Itoa(sv.Ledger.AttemptNumber()))
}

// pushSmallFirst pushes the small changes first if the box is being stopped and there are large ones, too. A failure costs only time: the
// following push has all of the changes.
func (sv *Saver) pushSmallFirst(ctx context.Context) {
	if !sv.Stop.Stopping() || sv.firstDone {
		return
	}
	sv.firstDone = true
	ctx, cancel := context.WithTimeout(ctx, firstTime)
	defer cancel()
	start := time.Now()
	commit, err := sv.Checkpoints.FirstCommit(ctx)
	if err == nil && commit != "" {
		err = sv.Pusher.PushAccepted(ctx, []remote.Change{{Ref: sv.SmallChangesRef(), SHA: commit}}, nil, start)
	}
	if err != nil {
		sv.Repos.Emit(workorder.Event{Type: workorder.EventPush, Name: sv.SmallChangesRef(), Status: "error", Text: err.Error()})
	}
}
