package rootgit

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// maxSubject is how many characters of a commit's subject git and forges show in one line.
const maxSubject = 72

// refers matches what a forge takes for a mention, or for a reference that closes an issue.
var refers = lazyregexp.New(`[@#]+(\w)|://`)

// leftoverMessage returns the message of the commit with the agent's uncommitted work.
func leftoverMessage(task string) string {
	subject := ""
	for line := range strings.Lines(forge.StripPlain(task)) {
		line = strings.TrimLeft(line, "#*->_ \t")
		if subject = text.Words(text.Printable(refers.ReplaceAllString(line, " $1"))); subject != "" {
			break
		}
	}
	subject = cmp.Or(strings.TrimRight(text.Runes(strings.TrimRight(subject, ".:; *_#"), maxSubject), " "), "Keep uncommitted work")
	first, size := utf8.DecodeRuneInString(subject)
	return string(
		unicode.ToUpper(first),
	) + subject[size:] + "\n\nThe agent left these changes uncommitted when the run ended; sandbox-agent\ncommitted them for it so " +
		"that nothing is lost.\n"
}

const maxConflicts = 20

// conflictMessage returns the message of a commit with the agent's conflicts, which is not finished work.
func conflictMessage(c *tree.Conflicts) string {
	subject := "Keep an unfinished " + during(c)
	if len(c.Paths) > 0 {
		subject = "Keep unresolved conflicts of a " + during(c)
	}
	body := "The agent left this behind when the run ended. sandbox-agent committed the files\nas they were, with the markers of the " +
		"conflicts, so that nothing is lost.\n"
	return subject + "\n\n" + strings.Join(append([]string{body}, named(c.Paths)...), "\n- ") + "\n"
}

// conflictText describes in a clause what the agent left.
func conflictText(c *tree.Conflicts) string {
	if len(c.Paths) == 0 {
		return "the agent left a " + during(c) + " unfinished: not all of its commits are on the branch"
	}
	return fmt.Sprintf(
		"the agent left a %s with unresolved conflicts, which are kept as they were: %s", during(c), strings.Join(named(c.Paths), ", "),
	)
}

func during(c *tree.Conflicts) string {
	if c.During == "" {
		return "merge or stash"
	}
	return c.During
}

// named returns the first of some paths, as words without effect on a forge.
func named(paths []string) (list []string) {
	for _, p := range paths[:min(len(paths), maxConflicts)] {
		list = append(list, text.Words(text.Printable(refers.ReplaceAllString(p, " $1"))))
	}
	if more := len(paths) - maxConflicts; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return list
}
