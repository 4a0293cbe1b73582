package repository

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// maxSubject is what git and forges show of a commit's subject in one line, in characters.
const maxSubject = 72

// refers is what a forge takes for a mention, or a reference that closes an issue when the commit is merged.
var refers = pattern.New(`[@#]+(\w)|://`)

// leftoverMessage is the message of the commit that keeps the agent's uncommitted work: its subject is the task's first line.
func leftoverMessage(task string) string {
	subject := ""
	for line := range strings.Lines(forge.StripPlain(task)) {
		line = strings.TrimLeft(line, "#*->_ \t")
		if subject = text.Words(text.Printable(refers.ReplaceAllString(line, " $1"))); subject != "" {
			break
		}
	}
	subject = strings.TrimRight(text.Runes(strings.TrimRight(subject, ".:; *_#"), maxSubject), " ")
	if subject == "" {
		subject = "Keep uncommitted work"
	}
	first, size := utf8.DecodeRuneInString(subject)
	return string(unicode.ToUpper(first)) + subject[size:] + "\n\nThe agent left these changes uncommitted when the run ended; sandbox-agent\ncommitted them for it so that nothing is lost.\n"
}
