package render

import (
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (s *summary) rebased(r *workorder.Rebased) {
	if r == nil {
		return
	}
	count := map[string]int{}
	for _, m := range r.Moved {
		count[m.How]++
	}
	var moved []string
	for _, how := range []string{workorder.RangeSame, workorder.RangeChanged, workorder.RangeDropped, workorder.RangeAdded} {
		if count[how] > 0 {
			moved = append(moved, fmt.Sprintf("%d %s", count[how], how))
		}
	}
	text := words("onto", oneLine(r.Onto), short(r.NewBase))
	if !r.Pushed {
		text = s.p.as(yellow, "not ") + text
	}
	s.row("rebased", join(" · ", text, strings.Join(moved, ", ")))
	shown := 0
	for _, m := range r.Moved {
		if m.How != workorder.RangeSame && shown < s.most() {
			shown++
			s.text("", words(oneLine(m.How), short(m.Old), oneLine(m.Subject)+":", oneLine(m.Why)), "")
		}
	}
	if r.Pushed {
		s.row("", "the head before is kept as "+oneLine(r.Backup))
	} else if r.Kept != "" {
		s.row("", "the new commits are kept as "+oneLine(r.Kept))
	}
}
