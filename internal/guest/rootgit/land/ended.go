package land

import (
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ended records the end of our attempt in a state and releases the lease.
func (ld *Lander) ended(s *workorder.State, end workorder.Attempt) {
	end.ID = ld.repos.Order.AttemptID
	end.Reason, end.Agent.Final, end.Plan = ld.repos.Mask(end.Reason), ld.repos.Mask(end.Agent.Final), ld.repos.Mask(end.Plan)
	if a := s.Find(end.ID); a != nil {
		end.Number, end.Mode, end.StartedAt, end.Incarnation = a.Number, a.Mode, a.StartedAt, a.Incarnation
		*a = end
	} else {
		s.Attempts = append(s.Attempts, end)
	}
	s.Lease = nil
	if ld.Answered {
		ld.feedback.Answered(s, end.HeadSHA)
	}
}
