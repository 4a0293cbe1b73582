package forge

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
)

const (
	// MaxBody is GitHub's limit of a body or comment, in characters.
	MaxBody = 65536
	// maxTitle is GitHub's limit of a title, in characters.
	maxTitle = 256
	cutNote  = "\n\n---\n\n_Cut here: this text has %d characters, GitHub takes %d. The whole text is in the task's result._\n"
)

// FitBody cuts Markdown to limit characters at a paragraph or line, closes open blocks, and adds a note.
func FitBody(text string, limit int) (fit string, cut bool) {
	n := utf8.RuneCountInString(text)
	if n <= limit {
		return text, false
	}
	note := fmt.Sprintf(cutNote, n, limit)
	// Space to close a fence and all folds.
	const closing = 600
	room := max(limit-utf8.RuneCountInString(note)-closing, 0)
	end := 0
	for range room {
		_, size := utf8.DecodeRuneInString(text[end:])
		end += size
	}
	head := text[:end]
	// The last paragraph in the last quarter, else a line, else anywhere.
	if i := strings.LastIndex(head, "\n\n"); i > end*3/4 {
		head = head[:i]
	} else if i := strings.LastIndexByte(head, '\n'); i > end/2 {
		head = head[:i]
	}
	return head + closeOpen(head) + note, true
}

func closeOpen(head string) string {
	fence, folds := "", 0
	for line := range strings.SplitSeq(head, "\n") {
		bare := strings.TrimSpace(line)
		mark := bare[:len(bare)-len(strings.TrimLeft(bare, "`"))]
		switch {
		case fence != "":
			if len(mark) >= len(fence) && bare == mark {
				fence = ""
			}
			continue
		case len(mark) >= 3:
			fence = mark
			continue
		}
		folds += strings.Count(bare, "<details") - strings.Count(bare, "</details>")
	}
	out := ""
	if fence != "" {
		out = "\n" + fence[:min(len(fence), 100)]
	}
	// 40 folds are enough for any reader; deeper ones end with the body.
	return out + strings.Repeat("\n</details>", min(max(folds, 0), 40))
}

// titleActs is what GitHub acts on in a title and in the message of a squashed commit.
var titleActs = lazyregexp.New(`(?i)@[a-z0-9]|#[0-9]|\bgh-[0-9]|://`)

// partTitle puts a zero-width space into each: a title has no escapes, and its text may be untrusted.
func partTitle(title string) string {
	return titleActs.ReplaceAllStringFunc(title, func(m string) string {
		if m[0] == ':' {
			return ":\u200b//"
		}
		return m[:len(m)-1] + "\u200b" + m[len(m)-1:]
	})
}

// FitTitle returns a title on one line, within GitHub's limit, that acts on nothing.
func FitTitle(title string) string {
	return texts.Runes(partTitle(texts.Words(visible(title))), maxTitle)
}
