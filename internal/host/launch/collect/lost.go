package collect

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/journal"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// loss says how much work a vanished box can have lost since its last save. It is empty
// if that is not known.
func (c *Collector) loss(rec *store.Record) string {
	var s outcome.Saves
	branch, state := workorder.BranchRef(rec.TargetBranch), workorder.StateRef(rec.TaskID)
	if err := journal.Events(rec.Dir, func(e workorder.Event) { s.Event(e, branch, state) }); err != nil {
		return ""
	}
	// A save holds the state at the time it began.
	took, why := time.Duration(s.Good.DurationMS)*time.Millisecond, s.Bad.Text
	why, _, _ = strings.Cut(why, "\n") // it becomes part of a sentence
	switch {
	case s.Bad.Type != "" && s.Good.Type == "":
		return "nothing of it could be saved: " + why
	case s.Bad.Type != "":
		since := s.Good.Time.Add(-took)
		return fmt.Sprintf("nothing could be saved since %s, in its last %.0f s: %s", since.UTC().Format(time.RFC3339), math.Ceil(s.End.Sub(since).Seconds()), why)
	case s.Good.Type == "":
		return ""
	}
	o, err := outcome.ReadOrder(rec.Dir)
	if err != nil {
		return ""
	}
	// Unchanged work leaves no event, so the interval counts and not the time since the last
	// event. A run cannot lose more than its whole duration.
	most := min(o.CheckpointInterval()+took, c.Host.Time().Sub(rec.Begun()))
	return fmt.Sprintf("at most the work of the last %.0f s is lost", math.Ceil(most.Seconds()))
}
