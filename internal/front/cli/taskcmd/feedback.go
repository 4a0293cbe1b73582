package taskcmd

import (
	"cmp"
	"fmt"
	"io"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxShown bounds an item's text in the list, in characters.
const maxShown = 100

// showReview lists the items for a rehearsal.
func showReview(w io.Writer, r *workorder.Review) {
	for i := range r.Items {
		it := &r.Items[i]
		at := ""
		if it.Path != "" {
			at = " " + text.Clean(it.Path)
			if it.Line > 0 {
				at += fmt.Sprintf(":%d", it.Line)
			}
		}
		how := ""
		if !it.Command {
			how = ", quoted: its author may not write to the repository"
		}
		n := it.Notes[0]
		fmt.Fprintf(w, "item %d: %s%s, by %s%s: %s\n", it.Number, cmp.Or(it.Source, "text"), at, text.Clean(n.Author), how,
			text.Runes(text.Words(text.Clean(n.Text)), maxShown))
	}
}
