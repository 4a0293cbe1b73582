package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Forge reads the feedback on pull requests.
type Forge interface {
	Feedback(ctx context.Context, pr int, since time.Time) (forge.Feedback, error)
	// Commented reports whether sandbox-agent's comment with that key exists.
	Commented(ctx context.Context, pr int, key string) (bool, error)
}

// ReadReview adds the feedback that is newer than the task's state, of the pull request (or nil) and then of the file.
func (r *Remote) ReadReview(ctx context.Context, f Forge, pr *forge.PR, file FeedbackFile) error {
	r.Review = &workorder.Review{}
	warnings := slices.Clone(file.warnings)
	if pr != nil {
		state := cmp.Or(r.State, &workorder.State{})
		since, err := readUntil(ctx, f, pr.Number, state)
		if err != nil {
			return err
		}
		feedback, err := f.Feedback(ctx, pr.Number, since)
		if err != nil {
			return err
		}
		var more []string
		r.Review, more = reviewOf(pr, &feedback, unfinished(state))
		warnings = append(warnings, more...)
	}
	items := &r.Review.Items
	room := workorder.MaxReviewItems - len(*items)
	if left := len(file.items) - room; left > 0 {
		warnings = append(warnings, fmt.Sprintf("a run takes %d items of feedback: the last %d entries of the file are left out, give them "+
			"again after this one", workorder.MaxReviewItems, left))
	}
	for _, item := range file.items[:min(len(file.items), room)] {
		item.Number = len(*items) + 1
		*items = append(*items, item)
	}
	r.Notes = append(r.Notes, warnings...)
	return nil
}

// nothing says why there is no feedback to address, or "".
func (s State) nothing() string {
	r := s.Remote.Review
	if r == nil {
		return ""
	}
	switch n := len(r.Items); {
	case n == 0 && r.PR == 0:
		return "the feedback file is empty: there is nothing to address"
	case n == 0 && s.Remote.State != nil && unfinished(s.Remote.State) != nil:
		return fmt.Sprintf("pull request #%d has no feedback to address; what an attempt before was given is not all answered: `sandbox-agent "+
			"continue %s` goes on with it", r.PR, s.Task)
	case n == 0:
		return fmt.Sprintf("pull request #%d has no feedback to address", r.PR)
	case s.Text == "" && !commands(r):
		return fmt.Sprintf("pull request #%d has nothing to address: what there is (%d) is by people or bots that may not write to the "+
			"repository; --task \"...\" says what to do with it, --dry-run --task shows it", r.PR, n)
	}
	return ""
}

// readUntil returns the time of the newest answered feedback. `pr open` may have posted answers that the task's state lacks.
func readUntil(ctx context.Context, f Forge, pr int, s *workorder.State) (time.Time, error) {
	if r := s.Review; r != nil && r.PR == pr && r.Until.After(s.ReviewedUntil) && unfinished(s) == nil {
		if there, err := f.Commented(ctx, pr, pullrequest.AnswersKey(s.TaskID, s.Last().Number)); err != nil || there {
			return r.Until, err
		}
	}
	return s.ReviewedUntil, nil
}

// unfinished returns the feedback that the last attempt did not finish. A successful attempt finished all of it, even if its
// answers were posted only later.
func unfinished(s *workorder.State) *workorder.Review {
	if last := s.Last(); last != nil && last.Status.Worked() {
		return nil
	}
	return s.Review
}

// pullNumber returns the newest pull request in the record's results, or 0.
func pullNumber(rec *taskstore.Record) int {
	for _, a := range slices.Backward(rec.Attempts()) {
		past, err := rec.At(a.Number)
		if err != nil {
			continue
		}
		if res, err := outcome.ReadResult(past); err == nil && res.PR != nil && res.PR.Number > 0 {
			return res.PR.Number
		}
	}
	return 0
}

// PRClient opens pull requests on the forge of a repository.
type PRClient interface {
	HasToken() bool
	// Open opens or updates the pull request. An error with a pull request means that a part failed.
	Open(ctx context.Context, order *workorder.Order, res *workorder.Result, told pullrequest.ReportInput) (pr *workorder.PR,
		warnings []string,
		err error)
	// Answer posts the missing answers to reviewers.
	Answer(ctx context.Context, order *workorder.Order, res *workorder.Result, pr int) ([]workorder.ReviewAnswer, error)
}

// PROpener opens the pull request of a task whose run could not open it.
type PROpener struct {
	Draft   bool
	Base    string // "" means the project's, or the task's
	Connect func(context.Context, *workorder.Order) (PRClient, error)

	order *workorder.Order
	res   *workorder.Result
	pulls PRClient
}

// look reads the last attempt's output and connects to the forge.
func (o *PROpener) look(ctx context.Context, rec *taskstore.Record) (p *PRState, err error) {
	if o.res, err = outcome.ReadResult(rec); err != nil {
		return &PRState{NoResult: err}, nil
	}
	if o.order, err = savedOrder(rec.Dir); err != nil {
		return nil, err
	}
	pr := workorder.PullRequest{}
	if o.order.PR != nil {
		pr = *o.order.PR
	}
	pr.Draft = pr.Draft || o.Draft
	if o.Base != "" {
		pr.Base = o.Base
	}
	o.order.PR = &pr
	p = &PRState{Repo: text.Clean(o.order.Repo), NothingToOpen: pullrequest.SkipReason(o.order, o.res)}
	if p.NothingToOpen == "" {
		if o.pulls, err = o.Connect(ctx, o.order); err != nil {
			return nil, err
		}
		p.Token = o.pulls.HasToken()
	}
	return p, nil
}

// open opens the pull request and posts missing answers to feedback.
func (o *PROpener) open(ctx context.Context, rec *taskstore.Record) (pr *workorder.PR, warnings []string, err error) {
	told, _ := outcome.LoadReport(rec, o.res)
	pr, _, warnings, err = pullrequest.OpenAll(ctx, o.order, o.res, func(ctx context.Context, order *workorder.Order, r *workorder.Result) (
		pr *workorder.PR, why string, warnings []string, err error,
	) {
		to, from := o.pulls, told
		if order != o.order { // of a further repository
			if to, err = o.Connect(ctx, order); err != nil {
				return nil, "", nil, err
			}
			from = pullrequest.ReportInput{Order: order, Result: r}
		}
		from.Result.Repos = r.Repos
		pr, warnings, err = to.Open(ctx, order, r, from)
		return pr, "", warnings, err
	})
	if pr == nil {
		return nil, warnings, err
	}
	if aerr := outcome.Amend(rec, func(r *workorder.Result) { r.PR, r.Repos = pr, o.res.Repos }); err != nil || aerr != nil {
		return nil, warnings, errors.Join(err, aerr)
	}
	if pullrequest.AnswerSkipReason(o.order, o.res) != "" {
		return pr, warnings, nil
	}
	answers, err := o.pulls.Answer(ctx, o.order, o.res, pr.Number)
	return pr, warnings, errors.Join(err, outcome.Amend(rec, func(r *workorder.Result) { r.Review = answers }))
}

// savedOrder reads the order of a task's last attempt, which has no secrets.
func savedOrder(dir string) (*workorder.Order, error) {
	b, err := os.ReadFile(filepath.Join(dir, workorder.OrderFile))
	if err != nil {
		return nil, fmt.Errorf("read the task's order: %w", err)
	}
	return workorder.DecodeOrder(b)
}

// TaskOfPR returns the task of a pull request. It refuses closed ones, forks and other branches, which this program must not write.
func TaskOfPR(pr *forge.PR) (id string, err error) {
	branch := text.Clean(pr.Head)
	id, ok := branchTask(pr.Head)
	hint := ""
	switch {
	case pr.Fork:
		err = fmt.Errorf("pull request #%d comes from another repository (%s), to which sandbox-agent must not push", pr.Number,
			text.Clean(cmp.Or(pr.HeadRepo, "which is gone")))
		hint = "only pull requests of a task's own branch can be worked on"
	case !ok:
		err = fmt.Errorf("pull request #%d has the branch %s, which does not belong to a task", pr.Number, branch)
		hint = "a task's branch begins with agent/T-; `sandbox-agent create --branch " + branch + "` starts a task from this one"
	case pr.State != forge.StateOpen:
		err = fmt.Errorf("pull request #%d is %s", pr.Number, text.Clean(pr.State))
		hint = "reopen it, or go on with its task: `sandbox-agent continue " + id + " --task \"...\"`"
	}
	return id, exiterr.New(workorder.ExitGit, err, hint)
}

// branchTask parses a task's branch: agent/T-XXXXXXXX, with an optional slug.
func branchTask(branch string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(branch, "agent/")
	const size = len("T-XXXXXXXX")
	if !ok || len(rest) < size {
		return "", false
	}
	id = rest[:size]
	return id, workorder.ValidTaskID(id) && workorder.ValidRefName(branch) && workorder.OwnBranch(id, branch)
}
