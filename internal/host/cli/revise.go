package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type reviseOptions struct {
	continueOptions
	pr           int
	feedbackFile string
}

func newReviseCmd(a *App) *cobra.Command {
	o := &reviseOptions{}
	var id string
	cmd := &cobra.Command{
		Use:   "revise [TASK] [--pr N] [flags]",
		Short: "Let the agent address the review of a task's pull request",
		Long: `Revise goes on with a task in a new box and gives the agent the feedback on its pull
request: all review threads that are not resolved, and reviews and comments since the last
time, those of bots included. Each is a numbered item. Afterwards each thread gets a reply
with the commits that address it or the agent's reason, and is resolved only where commits
address it and the project's own checks, run apart from the agent, are green.

Only who may write to the repository can command. What others write, bots included, is
shown to the agent as a quotation; --task "..." says what to do with it.

The task is that of the pull request's branch; where the state folder knows the task, its
id is enough. --feedback-file takes feedback from a file, without any forge: each entry
of its outermost lists is an item. A text given with --task is an addition to the task. When there
is nothing to address no box is started and the exit code is 0.`,
		Example: `  sandbox-agent revise --pr 7 --project my-app
  sandbox-agent revise T-A1B2C3D4
  sandbox-agent revise A1B2 --feedback-file review.md
  sandbox-agent revise --pr 7 --dry-run
  sandbox-agent revise --pr 7 --task "Do what the linter's bot says, too"`,
		ValidArgsFunction: a.completeTasks(false),
		Args: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				switch {
				case arg == "-":
					o.in = true
				case id == "":
					id = arg
				default:
					return oneTask(cmd, args)
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.read(cmd.Flags(), a.Getenv); err != nil {
				return err
			}
			if id != "" && o.taskID != "" && id != o.taskID {
				return usage("give the task once: %s or --task-id %s", id, o.taskID)
			}
			o.taskID = cmp.Or(o.taskID, id)
			if cmd.Flags().Changed("pr") && o.pr <= 0 {
				return usage("--pr %d is no pull request's number", o.pr)
			}
			return a.runRevise(cmd.Context(), o)
		},
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.pr, "pr", 0, "number of the pull request (default: the task's)")
	f.StringVar(&o.feedbackFile, "feedback-file", "", "file with feedback, in place of the pull request's or beside that of --pr; - reads standard input")
	f.Lookup("task-id").Usage = "the task, as TASK"
	f.Lookup("task").Usage = "what to add to the task; - reads standard input"
	f.Lookup("task-file").Usage = "file with what to add; - reads standard input"
	f.StringVar(&o.targetBranch, "target-branch", "", "the task's branch (default: found on the remote)")
	f.BoolVar(&o.wait, "wait", false, "wait until a parked task can go on")
	f.BoolVar(&o.now, "now", false, "go on with a parked task before its limit resets")
	return cmd
}

// revision is the feedback that a task is picked up for.
type revision struct {
	pr     int
	pull   *taskPull // nil: the feedback is all in file
	file   []workorder.ReviewItem
	review *workorder.Review // once it was read
	// warnings are about the feedback.
	warnings []string
}

// nothingError says that there is no feedback to address, which is no failure.
type nothingError struct{ says string }

func (e *nothingError) Error() string { return e.says }

func (a *App) runRevise(ctx context.Context, o *reviseOptions) error {
	switch {
	case o.taskID == "" && o.pr == 0:
		return fault.New(workorder.ExitUsage, errors.New("no task given"), "give its pull request with --pr N, or its id: `sandbox-agent ps --all` lists the tasks of this machine")
	case o.now && o.wait:
		return usage("give --now or --wait, not both")
	case o.feedbackFile == "-" && (o.in || o.taskSet && o.task == "-" || o.taskFileSet && o.taskFile == "-"):
		return usage("standard input can be the feedback or the task, not both")
	}
	p := &pickUp{
		starter: starter{a: a, o: &o.createOptions, find: credentials.New(a.Getenv)},
		now:     o.now, wait: o.wait, branch: o.targetBranch, revise: &revision{pr: o.pr},
	}
	var err error
	if o.taskSet || o.taskFileSet || o.in {
		if p.text, err = a.taskText(ctx, &o.createOptions); err != nil {
			return err
		}
	}
	if o.feedbackFile != "" {
		if p.revise.file, p.revise.warnings, err = a.readFeedbackFile(o.feedbackFile); err != nil {
			return err
		}
	}
	rec, err := p.findTask(ctx, o)
	if err == nil && o.targetBranch != "" && !workorder.OwnBranch(o.taskID, o.targetBranch) {
		err = usage("--target-branch %s cannot be the branch of %s: its name begins with agent/%s", o.targetBranch, o.taskID, o.taskID)
	}
	if err == nil {
		err = p.run(ctx, rec)
	}
	if nothing, ok := errors.AsType[*nothingError](err); ok {
		out := a.Stdout
		if o.json || o.detach {
			out = a.Stderr // a script takes events or the task id from standard output
		}
		fmt.Fprintln(out, nothing.says)
		return nil
	}
	return err
}

// findTask finds the task by its id or by its pull request, and the one by the other. The record is nil for
// a task that this state folder does not know.
func (p *pickUp) findTask(ctx context.Context, o *reviseOptions) (rec *store.Record, err error) {
	if o.taskID != "" {
		if rec, err = p.knownHere(&o.createOptions); err != nil {
			return nil, err
		}
		if rec != nil {
			if err := p.remember(rec); err != nil {
				return nil, err
			}
		}
	}
	if o.pr == 0 && o.feedbackFile != "" {
		return rec, nil
	}
	if o.pr == 0 {
		if p.revise.pr = taskPR(rec); p.revise.pr == 0 {
			return nil, fault.New(workorder.ExitUsage, fmt.Errorf("the pull request of task %s is not known here", o.taskID),
				"give it: --pr N; or feedback of your own: --feedback-file; `sandbox-agent pr open "+o.taskID+"` opens one")
		}
	}
	r, err := p.a.loadGround(ctx, p.o)
	if err != nil {
		return nil, err
	}
	if p.revise.pull, err = p.a.taskPull(ctx, r.project, p.revise.pr); err != nil {
		return nil, err
	}
	if task := p.revise.pull.task; o.taskID == "" {
		o.taskID = task
	} else if o.taskID != task {
		return nil, usage("pull request #%d is that of task %s, not of %s", p.revise.pr, task, o.taskID)
	}
	if rec == nil {
		return p.knownHere(&o.createOptions)
	}
	return rec, nil
}

// knownHere is the record of the task, nil where only the remote may know it; its id is the full one then.
func (p *pickUp) knownHere(o *createOptions) (*store.Record, error) {
	st, rec, err := p.a.task(o.taskID)
	if err == nil {
		o.taskID = rec.TaskID
		return rec, nil
	}
	if full := fullID(o.taskID); st != nil && fault.Code(err) == workorder.ExitNotFound && workorder.ValidTaskID(full) {
		o.taskID = full
		return nil, nil
	}
	return nil, err
}

// taskPR is the number of the pull request that the newest attempt knows of; 0: none does.
func taskPR(rec *store.Record) int {
	if rec == nil {
		return 0
	}
	for _, a := range slices.Backward(rec.Attempts()) {
		past, err := rec.At(a.Number)
		if err != nil {
			continue
		}
		if res, err := launch.ReadResult(past); err == nil && res.PR != nil && res.PR.Number > 0 {
			return res.PR.Number
		}
	}
	return 0
}

// prepare makes the box reach the forge, also where the project's runs open no pull requests.
func (v *revision) prepare(r *resolved) {
	if v.pull == nil {
		return
	}
	pr := workorder.PullRequest{}
	if r.project.PR != nil {
		pr = *r.project.PR
	}
	pr.Base = cmp.Or(pr.Base, v.pull.Base) // it stays where it is
	r.project.PR = &pr
}

// read reads the feedback since what the remote's state of the task says.
func (v *revision) read(ctx context.Context, on *remoteTask, text string) error {
	v.review = &workorder.Review{}
	warnings := slices.Clone(v.warnings)
	if v.pull != nil {
		state := on.state
		if state == nil {
			state = &workorder.State{}
		}
		f, err := v.pull.client.Feedback(ctx, v.pr, state.ReviewedUntil)
		if err != nil {
			return forgeFault(err)
		}
		var more []string
		v.review, more = reviewOf(&v.pull.PR, &f, unfinished(state))
		warnings = append(warnings, more...)
	}
	room := workorder.MaxReviewItems - len(v.review.Items)
	if left := len(v.file) - room; left > 0 {
		warnings = append(warnings, fmt.Sprintf("a run takes %d items of feedback: the last %d entries of the file are left out, give them again after this one", workorder.MaxReviewItems, left))
	}
	for _, item := range v.file[:min(len(v.file), room)] {
		item.Number = len(v.review.Items) + 1
		v.review.Items = append(v.review.Items, item)
	}
	on.notes = append(on.notes, warnings...)
	switch n := len(v.review.Items); {
	case n == 0:
		return &nothingError{fmt.Sprintf("pull request #%d has no feedback to address", v.pr)}
	case text == "" && !commands(v.review):
		return &nothingError{fmt.Sprintf("pull request #%d has nothing to address: what there is (%d) is by people or bots that may not write to the repository; --task \"...\" says what to do with it, --dry-run --task shows it", v.pr, n)}
	}
	return nil
}

// unfinished is the feedback that the last attempt took on and was not done with. One that was done could not give its answers; where
// the forge has them now, somebody gave them since.
func unfinished(s *workorder.State) *workorder.Review {
	if last := s.Last(); last != nil && (last.Status == workorder.StatusSuccess || last.Status == workorder.StatusNoChanges) {
		return nil
	}
	return s.Review
}

// rehearseRevision prints what would be done, for which remote and forge are asked.
func (p *pickUp) rehearseRevision(ctx context.Context, rec *store.Record) error {
	branch, base := p.branch, ""
	if rec != nil {
		if err := p.remember(rec); err != nil {
			return err
		}
		branch, base = cmp.Or(branch, rec.TargetBranch), rec.Branch
	}
	r, on, err := p.look(ctx)
	if err == nil && !on.known {
		err = p.nowhere(r)
	}
	if err == nil {
		err = p.order(r, on, p.text, branch, base)
	}
	if err != nil {
		return err
	}
	on.tell(r.job, rec)
	showReview(p.a.Stderr, p.revise.review)
	return p.a.dryRun(r)
}
