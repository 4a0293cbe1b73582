package taskcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// readFeedbackFile reads feedback from a file, or from standard input for "-".
func readFeedbackFile(ctx context.Context, f *cmdutil.Factory, name string) (feedback tasks.FeedbackFile, err error) {
	in := f.Input(ctx)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return feedback, app.Usagef("read the feedback: %w", err)
		}
		defer file.Close()
		in = file
	}
	b, err := io.ReadAll(io.LimitReader(in, tasks.MaxFeedback+1))
	text := string(b)
	switch {
	case ctx.Err() != nil:
		return feedback, tasks.ErrInterrupted
	case err != nil:
		return feedback, app.Usagef("read the feedback: %w", err)
	case len(b) > tasks.MaxFeedback:
		return feedback, app.Usagef("the feedback has more than %d bytes", tasks.MaxFeedback)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return feedback, app.Usagef("the feedback is not text: it must be UTF-8 without NUL bytes")
	}
	return tasks.ParseFeedback(text), nil
}

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
