package land

import (
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ended records the end of this box's attempt in a state and releases the lease.
func (ld *Lander) ended(s *workorder.State, end workorder.Attempt) {
	end.ID = ld.Repos.Order.AttemptID
	end.Reasons, end.Agent.Final, end.Plan = end.Reasons.Each(ld.Repos.Mask), ld.Repos.Mask(end.Agent.Final), ld.Repos.Mask(end.Plan)
	if a := s.Find(end.ID); a != nil {
		end.Number, end.Mode, end.StartedAt, end.Incarnation = a.Number, a.Mode, a.StartedAt, a.Incarnation
		*a = end
	} else {
		s.Attempts = append(s.Attempts, end)
	}
	s.Lease = nil
	if ld.Answered {
		ld.Feedback.RemoveAnswered(s, end.HeadSHA)
	}
}
