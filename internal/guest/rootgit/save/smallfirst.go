package save

import (
	"context"
	"strconv"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// firstTime bounds it as a part of the least time that a landing has.
const firstTime = workorder.LandGrace / 2

// FirstRef is where it lies; each attempt has one of its own.
func (sv *Saver) FirstRef() string {
	return workorder.KeptRef(sv.repos.Order.TaskID, "first-"+strconv.Itoa(sv.book.Number()))
}

// smallFirst pushes the small changes when the box is being stopped and there are large ones too. A failure costs time only: all of
// it is in what follows.
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
