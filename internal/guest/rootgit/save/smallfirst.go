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

// FirstRef returns the ref of the small changes; each attempt has its own.
func (sv *Saver) FirstRef() string {
	return workorder.KeptRef(sv.repos.Order.TaskID, "first-"+strconv.Itoa(sv.book.Number()))
}

// smallFirst pushes the small changes first if the box is being stopped and there are large ones, too. A failure costs only time: the
// following push has all of the changes.
func (sv *Saver) smallFirst(ctx context.Context) {
	if !sv.stopping.Now() || sv.firstDone {
		return
	}
	sv.firstDone = true
	ctx, cancel := context.WithTimeout(ctx, firstTime)
	defer cancel()
	start := time.Now()
	commit, err := sv.snapshots.FirstCommit(ctx)
	if err == nil && commit != "" {
		err = sv.pusher.Rest(ctx, []remote.Change{{Ref: sv.FirstRef(), SHA: commit}}, nil, start)
	}
	if err != nil {
		sv.repos.Emit(workorder.Event{Type: workorder.EventPush, Name: sv.FirstRef(), Status: "error", Text: err.Error()})
	}
}
