package render

import (
	"fmt"
	"strconv"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// surface lists what to check before the branch is checked out or merged: the severe findings,
// and the number of the others.
func (s *summary) surface(r *workorder.Result) {
	shown, others := 0, 0
	for _, f := range r.Surface {
		if !f.Grave || shown == s.most() {
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
