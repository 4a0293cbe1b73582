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

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// AnswersVar is the environment variable with the path of the agent's answers file.
const AnswersVar = "SANDBOX_AGENT_ANSWERS"

const (
	// maxAnswers bounds how much of the file is read, in bytes: some hundred reasons of a paragraph each.
	maxAnswers = 128 << 10
	// maxReason bounds one reason, and maxAsked the quoted beginning of the feedback, in bytes.
	maxReason = 2000
	maxAsked  = 300

	answersName = "answers"
)

// Answers is the file in which the agent explains why it leaves items unchanged. Root owns the directory's parent.
type Answers struct {
	File string // for the agent
	dir  string
	user *proc.Credential
}

// NewAnswers creates the directory outside the work tree.
func NewAnswers(user *proc.Credential) (*Answers, error) {
	outer, err := os.MkdirTemp("", "sandbox-agent-answers-")
	if err != nil {
		return nil, fmt.Errorf("create the answers directory: %w", err)
	}
	dir := filepath.Join(outer, "to-reviewers")
	if err = os.Mkdir(dir, 0o700); err == nil && user != nil {
		err = errors.Join(os.Chown(dir, int(user.UID), int(user.GID)), os.Chmod(outer, 0o711))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create the answers directory: %w", err), os.RemoveAll(outer))
	}
	return &Answers{File: filepath.Join(dir, answersName), dir: dir, user: user}, nil
}

// Read returns the reasons by item number. The agent controls the file: Read follows no link and never blocks.
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

// FormError reports an answers file without a single well-formed line.
type FormError struct{ Said string }

func (e *FormError) Error() string {
	return fmt.Sprintf("read the agent's answers: no line begins with an item's number and a colon, as in `2: reason`: %q", e.Said)
}

func (a *Answers) read() ([]byte, error) {
	root, err := os.OpenRoot(a.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, _, err := safeopen.Open(root, answersName, a.user.Owner())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxAnswers))
}

var reasonLine = lazyregexp.New(`^\s*(?:[-*]\s+)?(?:[Ii]tem\s+)?#?([0-9]{1,3})\s*:\s*(.*)$`)

// parseReasons reads lines of the form "N: reason"; other lines continue the previous reason.
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

// Answered records how each item was answered: by commits or by the agent's reasons, each by item number.
func Answered(r *workorder.Review, commits map[int][]string, reasons map[int]string, clean func(string) string) []workorder.ReviewAnswer {
	var all []workorder.ReviewAnswer
	left := OmittedItems(r)
	for i := range r.Items {
		it := &r.Items[i]
		a := workorder.ReviewAnswer{
			Number: it.Number, Source: it.Source, Thread: it.Thread, Path: it.Path, Line: it.Line, URL: it.URL,
			Commits: commits[it.Number], Reason: clean(reasons[it.Number]), Answer: workorder.AnswerNone,
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
			a.Answer, a.Commits, a.Reason = workorder.AnswerDeferred, []string{}, "" // the agent never saw the item, so its answer does not count
		case !it.Command:
			a.Answer = workorder.AnswerQuoted
		case len(a.Commits) > 0:
			a.Answer = workorder.AnswerCommit
		case a.Reason != "":
			a.Answer = workorder.AnswerReason
		}
		all = append(all, a)
	}
	return all
}
