package render

import (
	"fmt"
	"strconv"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// surface lists what should be looked at before the branch is checked out or merged: the grave
// findings, and how many others the result has.
func (s *summary) surface(r *workorder.Result) {
	shown, others := 0, 0
	for _, f := range r.Surface {
		if !f.Grave || shown == maxShown {
			others++
			continue
		}
		place := oneLine(f.Path)
		if f.Line > 0 {
			place += ":" + strconv.Itoa(f.Line)
		}
		s.row(label(shown, "look at"), words(s.p.as(yellow, oneLine(f.Kind)), place, oneLine(f.Text)))
		shown++
	}
	if others > 0 {
		s.row(label(shown, "look at"), fmt.Sprintf("%d more in .surface of the result", others))
	}
}
