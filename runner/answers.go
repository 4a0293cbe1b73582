package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/internal/untrusted"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// AnswersVar names the file for the agent's reasons in its environment.
const AnswersVar = "SANDBOX_AGENT_ANSWERS"

const (
	// maxAnswers bounds what is read of the file, in bytes: some hundred reasons of a paragraph each.
	maxAnswers = 128 << 10
	// maxReason bounds one reason and maxAsked the beginning of what was asked for, in bytes.
	maxReason = 2000
	maxAsked  = 300

	answersName = "answers"
)

// Answers is where the agent says why it leaves items as they are. The folder is the
// user's, so that an editor which replaces files works; the one around it is ours, so that the
// folder cannot be swapped.
type Answers struct {
	File string // for the agent
	dir  string
	user *proc.Credential
}

// NewAnswers makes the folder. It lies outside of the work tree and goes with the box.
func NewAnswers(user *proc.Credential) (*Answers, error) {
	outer, err := os.MkdirTemp("", "sandbox-agent-answers-")
	if err != nil {
		return nil, fmt.Errorf("make the folder for answers: %w", err)
	}
	dir := filepath.Join(outer, "to-reviewers")
	if err = os.Mkdir(dir, 0o700); err == nil && user != nil {
		err = errors.Join(os.Chown(dir, int(user.UID), int(user.GID)), os.Chmod(outer, 0o711))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the folder for answers: %w", err), os.RemoveAll(outer))
	}
	return &Answers{File: filepath.Join(dir, answersName), dir: dir, user: user}, nil
}

// Read is the reasons by number. The file is the agent's: only a file of its user's is read, no link and
// nothing that makes us wait.
func (a *Answers) Read() (map[int]string, error) {
	b, err := a.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the agent's answers: %w", err)
	}
	reasons := parseReasons(string(b))
	if len(reasons) == 0 && strings.TrimSpace(string(b)) != "" {
		return nil, &FormError{Said: text.Cut(text.Words(text.Printable(strings.ToValidUTF8(string(b), "\ufffd"))), maxAsked)}
	}
	return reasons, nil
}

// FormError is an answers' file in which no line has the form.
type FormError struct{ Said string }

func (e *FormError) Error() string {
	return fmt.Sprintf("read the agent's answers: no line begins with an item's number and a colon, as in `2: reason`, so that they answer nothing: %q", e.Said)
}

func (a *Answers) read() ([]byte, error) {
	root, err := os.OpenRoot(a.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, _, err := untrusted.Open(root, answersName, a.user.Owner())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxAnswers))
}

var reasonLine = pattern.New(`^\s*(?:[-*]\s+)?(?:[Ii]tem\s+)?#?([0-9]{1,3})\s*:\s*(.*)$`)

// parseReasons reads lines of "N: reason"; others go on with the one before.
func parseReasons(said string) map[int]string {
	reasons := map[int]string{}
	last := 0
	for line := range strings.SplitSeq(ends.Replace(strings.ToValidUTF8(said, "\ufffd")), "\n") {
		line = strings.TrimSpace(text.Printable(strings.ReplaceAll(line, "\t", " ")))
		if m := reasonLine.FindStringSubmatch(line); m != nil {
			last, _ = strconv.Atoi(m[1])
			line = m[2]
		}
		if last == 0 || line == "" {
			continue
		}
		reasons[last] = strings.TrimSpace(text.Cut(strings.TrimSpace(reasons[last]+"\n"+line), maxReason))
	}
	return reasons
}

// Answered says what became of each item: commits by number, the agent's reasons by number.
func Answered(r *workorder.Review, commits map[int][]string, reasons map[int]string, clean func(string) string) []workorder.ReviewAnswer {
	var all []workorder.ReviewAnswer
	left := NoRoom(r)
	for i := range r.Items {
		it := &r.Items[i]
		a := workorder.ReviewAnswer{
			Number: it.Number, Source: it.Source, Thread: it.Thread, Path: it.Path, Line: it.Line, URL: it.URL,
			Commits: commits[it.Number], Reason: clean(reasons[it.Number]), Answer: workorder.NotAnswered,
		}
		if a.Commits == nil {
			a.Commits = []string{}
		}
		if len(it.Notes) > 0 {
			asked := it.Notes[0].Text
			a.Text = text.Cut(clean(text.Words(text.Printable(ends.Replace(asked)))), maxAsked)
		}
		switch {
		case slices.Contains(left, it.Number):
			a.Answer, a.Commits, a.Reason = workorder.LeftForLater, []string{}, "" // whatever is said of it was not said knowing it
		case !it.Command:
			a.Answer = workorder.NotCommanded
		case len(a.Commits) > 0:
			a.Answer = workorder.AnsweredByCommit
		case a.Reason != "":
			a.Answer = workorder.AnsweredByReason
		}
		all = append(all, a)
	}
	return all
}
