// Package tasks decides and executes the next step of a task: Next decides without input or output, Controller executes.
package tasks

import (
	"cmp"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ActionKind is a kind of action.
type ActionKind string

// Actions. The first group changes the state, and Next decides again.
const (
	ActionAwaitLock  ActionKind = "await lock"  // of another command
	ActionAwaitLimit ActionKind = "await limit" // until Action.Until, without the lock
	ActionEndBox     ActionKind = "end sandbox" // and collect its result
	ActionCollect    ActionKind = "collect"     // collect the result of the last box
	ActionReadRemote ActionKind = "ask remote"  // load the project and ask its remote
	ActionReadPR     ActionKind = "look at pull request"

	ActionBegin        ActionKind = "begin"         // a task that is not known yet
	ActionRestart      ActionKind = "begin again"   // a task that only this machine knows
	ActionContinue     ActionKind = "go on"         // a next attempt from the remote's state
	ActionFollow       ActionKind = "follow"        // the running box on this machine
	ActionReport       ActionKind = "report"        // the result of the last attempt on this machine
	ActionReportRemote ActionKind = "report remote" // the last attempt that the remote knows
	ActionOpenPR       ActionKind = "open"          // the pull request
	ActionNone         ActionKind = "nothing"       // for the reason in Action.Message
)

// Action is the next step.
type Action struct {
	Kind    ActionKind
	Until   time.Time // when a limit resets, for ActionAwaitLimit and the report of a parked task
	Unknown bool      // Until is a guess
	Message string
	// Attempt describes the attempt of ActionBegin, ActionRestart and ActionContinue.
	Attempt Attempt
}

// Attempt describes the next attempt.
type Attempt struct {
	Mode   workorder.Mode
	Text   string
	Branch string // the task's branch; "" means derived from the text
	Base   string // the base branch unless the user names one; "" means the project's
	Number int    // 0 if the store knows it
	Lost   bool   // the last attempt's box had started, but the remote has none of its work
}

// Next decides the next action. Its error is a *Refusal, or the reason why the remote could not be asked.
func Next(s State) (Action, error) {
	switch {
	case s.Verb == Read, s.Verb == OpenPR:
		return read(s)
	case s.OnlyNew():
		return onlyNew(s)
	case s.Record != nil && s.Remote == nil && !s.DryRun:
		return here(s)
	}
	return remote(s)
}

// onlyNew begins a task only if it is new. The box would refuse a known task, and its record would prevent a continue.
func onlyNew(s State) (Action, error) {
	switch {
	case s.Record != nil:
		return Action{}, s.Refuse(RefusalExists)
	case s.Fresh, s.DryRun: // a dry run does not ask the remote
		return s.begin(), nil
	case s.Remote == nil:
		return Action{Kind: ActionReadRemote}, nil
	case s.Remote.Err == nil && s.Remote.Known:
		return Action{}, s.Refuse(RefusalExistsElsewhere)
	}
	return s.begin(), nil // making the job reports an error
}

// here decides from this machine's record.
func here(s State) (Action, error) {
	rec := s.Record
	switch {
	case s.BoxRunning, s.Locked && !rec.Collected: // the lock's holder follows the box or decides
		if s.Verb != Create {
			return Action{}, s.Refuse(RefusalRunning)
		}
		return Action{Kind: ActionFollow}, nil
	case s.Locked:
		return Action{Kind: ActionAwaitLock}, nil
	case !rec.Collected:
		return Action{Kind: ActionCollect}, nil
	case rec.AttemptID != s.LastAtStart:
		return Action{Kind: ActionReport}, nil // another command continued the task, which answers this request
	}
	return s.after(endingHere(rec), ActionReport, Action{Kind: ActionReadRemote})
}

// remote decides from the remote's state, too.
func remote(s State) (Action, error) {
	on := s.Remote
	switch {
	case on == nil:
		return Action{Kind: ActionReadRemote}, nil
	case on.Err != nil && s.Record == nil && s.Verb == Create:
		return s.begin(), nil // making the job reports the error
	case on.Err != nil:
		return Action{}, on.Err
	case s.Verb == Revise && s.nothing() != "":
		return Action{Kind: ActionNone, Message: s.nothing()}, nil
	}
	if last := on.Last(); last != nil && !s.DryRun && (s.Record == nil || !s.Record.Knows(last.ID)) && last.Status != "" {
		// Another machine ended it. The box checks whether an attempt without an end is alive.
		return s.after(endingElsewhere(on.State), ActionReportRemote, Action{})
	}
	return start(s)
}

// start describes the next attempt.
func start(s State) (Action, error) {
	switch {
	case s.Remote.Known:
		return continueTask(s)
	case s.Record != nil && s.Verb != Revise && s.Verb != Rebase:
		return beginAgain(s)
	case s.Record == nil && s.Verb == Create:
		return s.begin(), nil
	}
	return Action{}, s.Refuse(RefusalUnknown)
}

func continueTask(s State) (_ Action, err error) {
	on, next := s.Remote, Attempt{Mode: workorder.ModeContinue, Text: s.Text, Branch: s.Branch}
	switch s.Verb {
	case Revise:
		next.Mode = workorder.ModeRevise
	case Rebase:
		next.Mode = workorder.ModeRebase
	}
	if last := on.Last(); last != nil {
		switch wasPlan := last.Mode == workorder.ModePlan; {
		case wasPlan != s.Plan:
			return Action{}, s.Refuse(planned(wasPlan))
		case wasPlan && next.Mode == workorder.ModeContinue:
			next.Mode = workorder.ModePlan // the interrupted plan left nothing
		}
		next.Number = last.Number + 1
	}
	if rec := s.Record; rec != nil {
		next.Branch, next.Base = cmp.Or(next.Branch, rec.TargetBranch), rec.Branch
		if next.Text == "" && on.State == nil && !s.DryRun {
			// Only this machine has the text. Without it, the box decides whether it can continue.
			next.Text = s.OrderText
		}
	}
	next.Base = cmp.Or(next.Base, on.Base())
	// Derive a missing branch from the text, as the first attempt did.
	if on.State != nil || on.Warning != "" || len(on.Branches) > 0 || next.Branch != "" || next.Text == "" {
		if next.Branch, err = s.branch(next.Branch); err != nil {
			return Action{}, err
		}
	}
	return Action{Kind: ActionContinue, Attempt: next}, nil
}

func beginAgain(s State) (Action, error) {
	rec := s.Record
	next := s.begin().Attempt
	next.Text, next.Branch, next.Base, next.Lost = cmp.Or(s.Text, s.OrderText), cmp.Or(s.Branch, rec.TargetBranch), rec.Branch, rec.Box != ""
	switch wasPlan := rec.Mode == workorder.ModePlan; {
	case next.Text == "":
		return Action{}, s.Refuse(RefusalNoText)
	case wasPlan && !s.Plan, !wasPlan && s.Plan && rec.Box != "":
		return Action{}, s.Refuse(planned(wasPlan))
	}
	return Action{Kind: ActionRestart, Attempt: next}, nil
}

func (s State) begin() Action {
	next := Attempt{Mode: workorder.ModeCreate, Text: s.Text}
	if s.Plan {
		next.Mode = workorder.ModePlan
	}
	return Action{Kind: ActionBegin, Attempt: next}
}

func planned(was bool) RefusalCode {
	if was {
		return RefusalPlan
	}
	return RefusalNotPlan
}

// branch returns the user's name of the branch, or the remote's.
func (s State) branch(named string) (string, error) {
	on := s.Remote
	switch {
	case on.State != nil && named != "" && named != on.State.TargetBranch:
		return "", s.Refuse(RefusalOtherBranch)
	case on.State != nil:
		return on.State.TargetBranch, nil
	case named != "":
		return named, nil
	case len(on.Branches) == 1:
		return on.Branches[0], nil
	case len(on.Branches) == 0 && on.Warning != "":
		return "", s.Refuse(RefusalStateUnreadable)
	case len(on.Branches) == 0:
		return "", s.Refuse(RefusalNoBranch)
	}
	return "", s.Refuse(RefusalSeveralBranches)
}

// after decides from the ending of the last attempt: it returns report if no attempt follows, else next. If next is empty, the
// remote has answered and start decides.
func (s State) after(last ending, report ActionKind, next Action) (Action, error) {
	switch verdict := s.judge(last); {
	case verdict == another && next.Kind == "":
		return start(s)
	case verdict == another:
		return next, nil
	case verdict == parked:
		a := Action{Kind: report}
		if s.Wait {
			a.Kind = ActionAwaitLimit
		}
		if last.resumeAt != nil {
			a.Until = *last.resumeAt
		} else {
			a.Until, a.Unknown = backOff(last.at, last.parked, s.Time), true
		}
		return a, nil
	case s.Verb == Create:
		return Action{Kind: report}, nil
	}
	return Action{}, s.Refuse(RefusalDone, string(last.status))
}

type verdict int

const (
	another verdict = iota // attempt
	parked
	done
)

// judge decides from the ending of the last attempt whether another one follows.
func (s State) judge(last ending) verdict {
	switch {
	case s.Verb == Rebase:
		return another
	case last.status == workorder.StatusParked && last.resumeAt == nil && s.Wait && !s.WaitedOnce && !s.Now:
		return parked
	case last.status == workorder.StatusParked && last.resumeAt != nil && last.resumeAt.After(s.Time) && !s.Now:
		return parked
	case workorder.Resumable(last.status, last.by), !last.began:
		// The cause may be gone, and the order is resolved again: a create that was refused for a known task is a continue now.
		return another
	case s.Verb == Create:
		return done
	case s.Text != "", s.Verb == Revise:
		return another
	}
	switch last.status {
	case workorder.StatusSuccess, workorder.StatusNoChanges, workorder.StatusPlanned:
		return done
	}
	return another // it failed, and the user wants another try
}

// read collects the result of an ended task and opens its pull request.
func read(s State) (Action, error) {
	switch rec := s.Record; {
	case s.BoxRunning, !rec.Collected && s.Locked:
		return Action{}, s.Refuse(RefusalStillRunning)
	case !rec.Collected:
		return Action{Kind: ActionCollect}, nil
	case s.Verb == Read:
		return Action{Kind: ActionReport}, nil
	case s.PR == nil:
		return Action{Kind: ActionReadPR}, nil
	case s.PR.NoResult != nil:
		return Action{}, s.Refuse(RefusalNoResult)
	case s.PR.NothingToOpen != "":
		return Action{}, s.Refuse(RefusalNothingToOpen)
	case !s.PR.Token:
		return Action{}, s.Refuse(RefusalNoToken)
	}
	return Action{Kind: ActionOpenPR}, nil
}
