// Package tasks decides the next step of a task: Next is a function of the known state of the task and of the user's
// request, and has no input or output.
package tasks

import (
	"cmp"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Do is a kind of action.
type Do string

// The actions. The first group changes the state, and Next is asked again.
const (
	AwaitLock  Do = "await lock"  // until the other command is done with the task
	AwaitLimit Do = "await limit" // until Action.Until, without the lock
	EndBox     Do = "end sandbox" // and collect its result
	Collect    Do = "collect"     // collect the result of the last box
	AskRemote  Do = "ask remote"  // load the project and ask its remote
	LookAtPull Do = "look at pull request"

	Begin        Do = "begin"         // a task that is not known yet
	BeginAgain   Do = "begin again"   // a task that only this machine knows: the remote has nothing of it
	GoOn         Do = "go on"         // a next attempt, from what the remote has
	Follow       Do = "follow"        // the box that runs on this machine
	Report       Do = "report"        // the result of the last attempt on this machine
	ReportRemote Do = "report remote" // the last attempt that the remote knows
	Open         Do = "open"          // the pull request
	Nothing      Do = "nothing"       // for the reason in Action.Says
)

// Action is the next step.
type Action struct {
	Do Do
	// Until is when a limit resets. AwaitLimit waits for it; the report of a parked task names it.
	Until time.Time
	// Unknown reports that Until is a guess: the limit's end is not known.
	Unknown bool
	Says    string
	// Attempt describes what Begin, BeginAgain and GoOn start.
	Attempt Attempt
}

// Attempt describes a next attempt.
type Attempt struct {
	Mode   workorder.Mode
	Text   string
	Branch string // the task's branch; if empty it is made of the text
	Base   string // the branch to start from, unless the user names one; if empty the project's
	Number int    // 0 if the store knows it
	Lost   bool   // the last attempt's box had begun, and the remote has none of its work
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

// onlyNew begins a task only if it is new. The box of a known task would be refused, and its folder would block a
// continue of the task.
func onlyNew(s State) (Action, error) {
	switch {
	case s.Record != nil:
		return Action{}, s.Refuse(Exists)
	case s.Fresh, s.DryRun: // a rehearsal does not ask the remote
		return s.begin(), nil
	case s.Remote == nil:
		return Action{Do: AskRemote}, nil
	case s.Remote.Err == nil && s.Remote.Known:
		return Action{}, s.Refuse(ExistsElsewhere)
	}
	return s.begin(), nil // if there is a fault, making the job reports it
}

// here decides by the record of this machine.
func here(s State) (Action, error) {
	rec := s.Record
	switch {
	case s.Runs, s.Held && !rec.Collected: // the holder of the lock follows the box, or is deciding
		if s.Verb != Create {
			return Action{}, s.Refuse(Running)
		}
		return Action{Do: Follow}, nil
	case s.Held:
		return Action{Do: AwaitLock}, nil
	case !rec.Collected:
		return Action{Do: Collect}, nil
	case rec.AttemptID != s.First:
		return Action{Do: Report}, nil // another command continued it meanwhile, which answers this request
	}
	return s.after(endingHere(rec), Report, Action{Do: AskRemote})
}

// remote decides by the remote's state, too.
func remote(s State) (Action, error) {
	on := s.Remote
	switch {
	case on == nil:
		return Action{Do: AskRemote}, nil
	case on.Err != nil && s.Record == nil && s.Verb == Create:
		return s.begin(), nil // making the job reports the fault
	case on.Err != nil:
		return Action{}, on.Err
	case s.Verb == Revise && s.nothing() != "":
		return Action{Do: Nothing, Says: s.nothing()}, nil
	}
	if last := on.Last(); last != nil && !s.DryRun && (s.Record == nil || !s.Record.Knows(last.ID)) && last.Status != "" {
		// Another machine ended it. Whether an attempt without an end still lives is found out by the box.
		return s.after(endingElsewhere(on.State), ReportRemote, Action{})
	}
	return start(s)
}

// start describes the next attempt.
func start(s State) (Action, error) {
	switch {
	case s.Remote.Known:
		return goOn(s)
	case s.Record != nil && s.Verb != Revise && s.Verb != Rebase:
		return beginAgain(s)
	case s.Record == nil && s.Verb == Create:
		return s.begin(), nil
	}
	return Action{}, s.Refuse(Unknown)
}

func goOn(s State) (_ Action, err error) {
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
			next.Mode = workorder.ModePlan // the interrupted plan left nothing: start again
		}
		next.Number = last.Number + 1
	}
	if rec := s.Record; rec != nil {
		next.Branch, next.Base = cmp.Or(next.Branch, rec.TargetBranch), rec.Branch
		if next.Text == "" && on.State == nil && !s.DryRun {
			// Then only this machine knows the text. Without it, the box decides whether it can continue.
			next.Text = s.OrderText
		}
	}
	next.Base = cmp.Or(next.Base, on.Base())
	// A branch without a name is made of the text, as the first time.
	if on.State != nil || on.Warning != "" || len(on.Branches) > 0 || next.Branch != "" || next.Text == "" {
		if next.Branch, err = s.branch(next.Branch); err != nil {
			return Action{}, err
		}
	}
	return Action{Do: GoOn, Attempt: next}, nil
}

func beginAgain(s State) (Action, error) {
	rec := s.Record
	next := s.begin().Attempt
	next.Text, next.Branch, next.Base, next.Lost = cmp.Or(s.Text, s.OrderText), cmp.Or(s.Branch, rec.TargetBranch), rec.Branch, rec.Box != ""
	switch wasPlan := rec.Mode == workorder.ModePlan; {
	case next.Text == "":
		return Action{}, s.Refuse(NoText)
	case wasPlan && !s.Plan, !wasPlan && s.Plan && rec.Box != "":
		return Action{}, s.Refuse(planned(wasPlan))
	}
	return Action{Do: BeginAgain, Attempt: next}, nil
}

func (s State) begin() Action {
	next := Attempt{Mode: workorder.ModeCreate, Text: s.Text}
	if s.Plan {
		next.Mode = workorder.ModePlan
	}
	return Action{Do: Begin, Attempt: next}
}

func planned(was bool) Why {
	if was {
		return IsPlan
	}
	return IsNoPlan
}

// branch is the named branch of the task, else the one that the remote knows.
func (s State) branch(named string) (string, error) {
	on := s.Remote
	switch {
	case on.State != nil && named != "" && named != on.State.TargetBranch:
		return "", s.Refuse(OtherBranch)
	case on.State != nil:
		return on.State.TargetBranch, nil
	case named != "":
		return named, nil
	case len(on.Branches) == 1:
		return on.Branches[0], nil
	case len(on.Branches) == 0 && on.Warning != "":
		return "", s.Refuse(StateUnreadable)
	case len(on.Branches) == 0:
		return "", s.Refuse(NoBranch)
	}
	return "", s.Refuse(SeveralBranches)
}

// after decides by the ending of the last attempt. It returns report if no other attempt follows, else next; if next is empty,
// the remote has answered already and start decides.
func (s State) after(last ending, report Do, next Action) (Action, error) {
	switch verdict := s.judge(last); {
	case verdict == another && next.Do == "":
		return start(s)
	case verdict == another:
		return next, nil
	case verdict == parked:
		a := Action{Do: report}
		if s.Wait {
			a.Do = AwaitLimit
		}
		if last.resumeAt != nil {
			a.Until = *last.resumeAt
		} else {
			a.Until, a.Unknown = backOff(last.at, last.parked, s.Time), true
		}
		return a, nil
	case s.Verb == Create:
		return Action{Do: report}, nil
	}
	return Action{}, s.Refuse(Done, string(last.status))
}

type verdict int

const (
	another verdict = iota // attempt
	parked
	done
)

// judge decides by the ending of the last attempt whether another one follows.
func (s State) judge(last ending) verdict {
	switch {
	case s.Verb == Rebase:
		return another // its ending does not matter for this request
	case last.status == workorder.StatusParked && last.resumeAt == nil && s.Wait && !s.Waited && !s.Now:
		return parked
	case last.status == workorder.StatusParked && last.resumeAt != nil && last.resumeAt.After(s.Time) && !s.Now:
		return parked
	case workorder.Resumable(last.status, last.by), !last.began:
		// The fault may be corrected, and the order is resolved again: a create that was refused
		// because the remote knows the task is a continue now.
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

// read collects the result of a task that has ended, and opens its pull request.
func read(s State) (Action, error) {
	switch rec := s.Record; {
	case s.Runs, !rec.Collected && s.Held:
		return Action{}, s.Refuse(StillRunning)
	case !rec.Collected:
		return Action{Do: Collect}, nil
	case s.Verb == Read:
		return Action{Do: Report}, nil
	case s.Pull == nil:
		return Action{Do: LookAtPull}, nil
	case s.Pull.NoResult != nil:
		return Action{}, s.Refuse(NoResult)
	case s.Pull.Nothing != "":
		return Action{}, s.Refuse(NothingToOpen)
	case !s.Pull.Token:
		return Action{}, s.Refuse(NoToken)
	}
	return Action{Do: Open}, nil
}
