package render

import (
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// feedback counts the results of a review's items, and lists those that were not addressed.
func (s *summary) feedback(r *workorder.Result) {
	if len(r.Review) == 0 {
		return
	}
	kinds := []struct{ answer, word string }{
		{workorder.AnsweredByCommit, "addressed"}, {workorder.AnsweredByReason, "left with a reason"}, {workorder.NotAnswered, "not addressed"}, {workorder.NotCommanded, "only quoted"},
	}
	count, resolved := map[string]int{}, 0
	for _, a := range r.Review {
		count[a.Answer]++
		if a.Resolved {
			resolved++
		}
	}
	var parts []string
	for _, k := range kinds {
		if n := count[k.answer]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k.word))
		}
	}
	if resolved > 0 {
		parts = append(parts, fmt.Sprintf("%d resolved", resolved))
	}
	s.row("feedback", strings.Join(parts, ", "))
}
