package tasks

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const id = "T-A1B2C3D4"

var (
	now   = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	later = now.Add(time.Hour)
	past  = now.Add(-time.Hour)
)

// ended is the record of a task whose last attempt ended so.
func ended(status workorder.Status, by workorder.EndedBy, more ...func(*taskstore.Record)) *taskstore.Record {
	r := &taskstore.Record{
		TaskID: id, AttemptID: "a1", Attempt: 1, Collected: true, Box: "box", Status: status, EndedBy: by, FinishedAt: now,
		TargetBranch: "agent/" + id + "-x", Branch: "main", Mode: workorder.ModeCreate,
	}
	for _, f := range more {
		f(r)
	}
	return r
}

func runs(r *taskstore.Record)     { r.Collected = false }
func noBox(r *taskstore.Record)    { r.Box = "" }
func plan(r *taskstore.Record)     { r.Mode = workorder.ModePlan }
func anothers(r *taskstore.Record) { r.AttemptID = "a2" }
func until(at *time.Time) func(*taskstore.Record) {
	return func(r *taskstore.Record) { r.ResumeAt = at }
}

// state is what the remote knows of a task whose attempts ended so.
func state(attempts ...workorder.Attempt) *Remote {
	s := &workorder.State{TaskID: id, TargetBranch: "agent/" + id + "-y", BaseBranch: "trunk", Attempts: attempts}
	for i := range s.Attempts {
		s.Attempts[i].Number = i + 1
	}
	return &Remote{Repo: "r", Known: true, State: s}
}

func attemptOf(attemptID string, status workorder.Status, by workorder.EndedBy) workorder.Attempt {
	return workorder.Attempt{ID: attemptID, Status: status, EndedBy: by, EndedAt: now, Mode: workorder.ModeContinue}
}

func do(d ActionKind) Action              { return Action{Kind: d} }
func at(d ActionKind, t time.Time) Action { return Action{Kind: d, Until: t} }
func guess(d time.Duration) Action {
	return Action{Kind: ActionAwaitLimit, Until: now.Add(d), Unknown: true}
}

const (
	here0  = "agent/" + id + "-x" // the branch that the record names
	there  = "agent/" + id + "-y" // the one that the remote's state names
	modeC  = workorder.ModeContinue
	done0  = workorder.StatusSuccess
	agent  = workorder.EndedByAgent
	failed = workorder.StatusFailed
)

var begins = Action{Kind: ActionBegin, Attempt: Attempt{Mode: workorder.ModeCreate}}

func goes(a Attempt) Action  { return Action{Kind: ActionContinue, Attempt: a} }
func again(a Attempt) Action { return Action{Kind: ActionRestart, Attempt: a} }

// TestNext has a row for each case.
func TestNext(t *testing.T) {
	t.Parallel()
	success := ended(done0, agent)
	timeout := ended(workorder.StatusTimeout, workorder.EndedByTimeout)
	running := ended("", "", runs)
	parkedTill := ended(workorder.StatusParked, workorder.EndedByLimit, until(&later))
	parkedPast := ended(workorder.StatusParked, workorder.EndedByLimit, until(&past))
	parkedOpen := ended(workorder.StatusParked, workorder.EndedByLimit)
	twice := ended(workorder.StatusParked, workorder.EndedByLimit, func(r *taskstore.Record) {
		r.Attempt, r.PastAttempts = 2, []taskstore.Attempt{{ID: "a0", Number: 1, Status: workorder.StatusParked}}
	})
	ask := do(ActionReadRemote)
	ours := state(attemptOf("a1", workorder.StatusTimeout, workorder.EndedByTimeout)) // the attempt that the record knows
	theirs := func(status workorder.Status, by workorder.EndedBy) *Remote { return state(attemptOf("b1", status, by)) }
	theirsParked := theirs(workorder.StatusParked, workorder.EndedByLimit)
	theirsParked.State.Last().ResumeAt = &later
	unread := &Remote{Repo: "r", Known: true, Warning: "broken"}
	oneBranch := &Remote{Repo: "r", Known: true, Branches: []string{"agent/" + id}}
	twoBranches := &Remote{Repo: "r", Known: true, Branches: []string{"agent/" + id, there}}
	saved := &Remote{Repo: "r", Known: true}
	nothing := &Remote{Repo: "r"}
	reviewed := func(pr int, mayAsk ...bool) *Remote {
		on := state(attemptOf("a1", done0, agent))
		on.Review = &workorder.Review{PR: pr}
		for _, may := range mayAsk {
			on.Review.Items = append(on.Review.Items, workorder.ReviewItem{Command: may})
		}
		return on
	}
	away := &Remote{Err: errors.New("away")}
	planThere := state(workorder.Attempt{ID: "b1", Mode: workorder.ModePlan, Status: workorder.StatusTimeout, EndedBy: workorder.EndedByTimeout})

	create := func(s State) State { s.Verb, s.IfExists = Create, true; return s }
	revise := func(s State) State { s.Verb = Revise; return s }
	rebase := func(s State) State { s.Verb = Rebase; return s }
	read := func(s State) State { s.Verb = Read; return s }
	open := func(s State) State { s.Verb = OpenPR; return s }
	wait := func(s State) State { s.Wait = true; return s }
	atOnce := func(s State) State { s.Now = true; return s }
	dry := func(s State) State { s.DryRun = true; return s }
	says := func(text string) func(State) State { return func(s State) State { s.Text = text; return s } }
	onBranch := func(b string) func(State) State { return func(s State) State { s.Branch = b; return s } }
	withPlan := func(s State) State { s.Plan = true; return s }
	waited := func(s State) State { s.WaitedOnce = true; return s }
	onlyNew := func(s State) State { s.Verb = Create; return s }
	fresh := func(s State) State { s.Verb, s.Fresh = Create, true; return s }
	held := func(s State) State { s.Locked = true; return s }
	inBox := func(s State) State { s.BoxRunning = true; return s }
	ordered := func(s State) State { s.OrderText = "the order's"; return s }
	pull := func(p PRState) func(State) State { return func(s State) State { s.PR = &p; return s } }

	type with = []func(State) State
	for name, c := range map[string]struct {
		rec  *taskstore.Record
		on   *Remote
		with with
		want Action
		why  RefusalCode
		code int
	}{
		// create
		"create a task with an id of its own":               {nil, nil, with{fresh}, begins, "", 0},
		"create, if it exists, without an id":               {nil, nil, with{create, fresh}, begins, "", 0},
		"create a plan":                                     {nil, nil, with{fresh, withPlan, says("x")}, Action{Kind: ActionBegin, Attempt: Attempt{Mode: workorder.ModePlan, Text: "x"}}, "", 0},
		"create a named task: the remote is asked":          {nil, nil, with{onlyNew}, ask, "", 0},
		"create a named task that is unknown":               {nil, nothing, with{onlyNew}, begins, "", 0},
		"create a named task: the remote does not answer":   {nil, away, with{onlyNew}, begins, "", 0},
		"create a named task that this machine knows":       {success, nil, with{onlyNew}, Action{}, RefusalExists, workorder.ExitUsage},
		"create a named task that the remote knows":         {nil, ours, with{onlyNew}, Action{}, RefusalExistsElsewhere, workorder.ExitUsage},
		"rehearse to create a named task: nothing is asked": {nil, nil, with{onlyNew, dry}, begins, "", 0},
		"rehearse to create one that this machine knows":    {success, nil, with{onlyNew, dry}, Action{}, RefusalExists, workorder.ExitUsage},
		"if it exists: unknown":                             {nil, nothing, with{create}, begins, "", 0},
		"if it exists: the remote does not answer":          {nil, away, with{create}, begins, "", 0},
		"if it exists: it runs":                             {running, nil, with{create, inBox}, do(ActionFollow), "", 0},
		"if it exists: another command follows it":          {running, nil, with{create, held}, do(ActionFollow), "", 0},
		"if it exists: another command decides":             {timeout, nil, with{create, held}, do(ActionAwaitLock), "", 0},
		"if it exists: it is over and not collected":        {running, nil, with{create}, do(ActionCollect), "", 0},
		"if it exists: it was cut short":                    {timeout, nil, with{create}, ask, "", 0},
		"if it exists: it is done":                          {success, nil, with{create}, do(ActionReport), "", 0},
		"if it exists: it failed, which is an answer":       {ended(failed, workorder.EndedByValidation), nil, with{create}, do(ActionReport), "", 0},
		"if it exists: another command continued it":        {ended(workorder.StatusTimeout, workorder.EndedByTimeout, anothers), nil, with{create}, do(ActionReport), "", 0},
		"if it exists: it is parked":                        {parkedTill, nil, with{create}, at(ActionReport, later), "", 0},
		"if it exists: its limit has reset":                 {parkedPast, nil, with{create}, ask, "", 0},
		"if it exists: no box accepted its order":           {ended(workorder.StatusError, workorder.EndedByOrder), nil, with{create}, ask, "", 0},
		"if it exists: it never had a box":                  {ended(failed, workorder.EndedByServices, noBox), nil, with{create}, ask, "", 0},
		"if it exists: the remote does not answer here":     {timeout, away, with{create}, Action{}, "", workorder.ExitGeneral},
		"if it exists elsewhere: it is done":                {nil, theirs(done0, agent), with{create}, do(ActionReportRemote), "", 0},
		"if it exists here, done by another machine":        {timeout, theirs(done0, agent), with{create}, do(ActionReportRemote), "", 0},
		"if it exists elsewhere: it is parked":              {nil, theirsParked, with{create}, at(ActionReportRemote, later), "", 0},
		"if it exists elsewhere: it may run":                {nil, theirs("", ""), with{create, says("x")}, goes(Attempt{Mode: modeC, Text: "x", Branch: there, Base: "trunk", Number: 2}), "", 0},
		"if it exists elsewhere: it was refused":            {nil, theirs(workorder.StatusError, workorder.EndedByOrder), with{create}, goes(Attempt{Mode: modeC, Branch: there, Base: "trunk", Number: 2}), "", 0},
		"rehearse, if it exists: unknown":                   {nil, nothing, with{create, dry}, begins, "", 0},
		"rehearse, if it exists elsewhere: it is done":      {nil, theirs(done0, agent), with{create, dry}, goes(Attempt{Mode: modeC, Branch: there, Base: "trunk", Number: 2}), "", 0},
		"if it exists: only saved work, the branch is new":  {nil, saved, with{create, says("x")}, goes(Attempt{Mode: modeC, Text: "x"}), "", 0},

		// continue
		"continue: unknown":                             {nil, nothing, nil, Action{}, RefusalUnknown, workorder.ExitNotFound},
		"continue: the project has no repository":       {nil, &Remote{}, nil, Action{}, RefusalUnknown, workorder.ExitNotFound},
		"continue: the remote does not answer":          {nil, away, nil, Action{}, "", workorder.ExitGeneral},
		"continue: it runs":                             {running, nil, with{inBox}, Action{}, RefusalRunning, workorder.ExitGeneral},
		"continue: another command follows it":          {running, nil, with{held}, Action{}, RefusalRunning, workorder.ExitGeneral},
		"continue: another command decides":             {timeout, nil, with{held}, do(ActionAwaitLock), "", 0},
		"continue: over and not collected":              {running, nil, nil, do(ActionCollect), "", 0},
		"continue: another command did":                 {ended(done0, agent, anothers), nil, nil, do(ActionReport), "", 0},
		"continue: it was cut short":                    {timeout, nil, nil, ask, "", 0},
		"continue: it is done":                          {success, nil, nil, Action{}, RefusalDone, workorder.ExitGeneral},
		"continue: there were no changes":               {ended(workorder.StatusNoChanges, agent), nil, nil, Action{}, RefusalDone, workorder.ExitGeneral},
		"continue: it has a plan":                       {ended(workorder.StatusPlanned, agent), nil, nil, Action{}, RefusalDone, workorder.ExitGeneral},
		"continue: done, and there is more to do":       {success, nil, with{says("more")}, ask, "", 0},
		"continue: it failed, and another try is asked": {ended(failed, workorder.EndedByValidation), nil, nil, ask, "", 0},
		"continue: the next attempt": {
			ended(workorder.StatusTimeout, workorder.EndedByTimeout, func(r *taskstore.Record) { r.TargetBranch = there }), ours, nil,
			goes(Attempt{Mode: modeC, Branch: there, Base: "main", Number: 2}), "", 0,
		},
		"continue: the record's branch is not the remote's":  {timeout, ours, nil, Action{}, RefusalOtherBranch, workorder.ExitUsage},
		"continue: the branch named is not the remote's":     {nil, ours, with{onBranch("agent/" + id)}, Action{}, RefusalOtherBranch, workorder.ExitUsage},
		"continue: the remote has nothing of it":             {timeout, nothing, with{ordered}, again(Attempt{Mode: workorder.ModeCreate, Text: "the order's", Branch: here0, Base: "main", Lost: true}), "", 0},
		"continue: the remote has nothing, and it never ran": {ended(workorder.StatusError, workorder.EndedByBox, noBox), nothing, with{ordered, says("mine")}, again(Attempt{Mode: workorder.ModeCreate, Text: "mine", Branch: here0, Base: "main"}), "", 0},
		"continue: the remote has nothing, nor is its text":  {timeout, nothing, nil, Action{}, RefusalNoText, workorder.ExitNotFound},
		"continue: the remote has nothing of a plan":         {ended(workorder.StatusTimeout, workorder.EndedByTimeout, plan), nothing, with{ordered}, Action{}, RefusalPlan, workorder.ExitUsage},
		"plan again: the remote has nothing of the plan":     {ended(workorder.StatusTimeout, workorder.EndedByTimeout, plan), nothing, with{create, ordered, withPlan}, again(Attempt{Mode: workorder.ModePlan, Text: "the order's", Branch: here0, Base: "main", Lost: true}), "", 0},
		"plan: a task that was begun":                        {timeout, nothing, with{create, ordered, withPlan}, Action{}, RefusalNotPlan, workorder.ExitUsage},
		"plan: a task that never had a box":                  {ended(workorder.StatusError, workorder.EndedByBox, noBox), nothing, with{create, ordered, withPlan}, again(Attempt{Mode: workorder.ModePlan, Text: "the order's", Branch: here0, Base: "main"}), "", 0},
		"plan: a task that the remote knows":                 {nil, ours, with{create, withPlan}, Action{}, RefusalNotPlan, workorder.ExitUsage},
		"plan: one that the remote knows as a plan":          {nil, planThere, with{create, withPlan}, goes(Attempt{Mode: workorder.ModePlan, Branch: there, Base: "trunk", Number: 2}), "", 0},
		"continue: a plan":                                   {nil, planThere, nil, Action{}, RefusalPlan, workorder.ExitUsage},
		"continue: done by another machine":                  {timeout, theirs(done0, agent), nil, Action{}, RefusalDone, workorder.ExitGeneral},
		"continue: cut short on another machine":             {nil, ours, nil, goes(Attempt{Mode: modeC, Branch: there, Base: "trunk", Number: 2}), "", 0},
		"continue: without a readable state":                 {timeout, unread, with{ordered}, goes(Attempt{Mode: modeC, Text: "the order's", Branch: here0, Base: "main"}), "", 0},
		"continue: neither state nor branch can be read":     {nil, unread, nil, Action{}, RefusalStateUnreadable, workorder.ExitGit},
		"continue: one branch and no state":                  {nil, oneBranch, nil, goes(Attempt{Mode: modeC, Branch: "agent/" + id}), "", 0},
		"continue: several branches":                         {nil, twoBranches, nil, Action{}, RefusalSeveralBranches, workorder.ExitUsage},
		"continue: several branches, one is named":           {nil, twoBranches, with{onBranch(there)}, goes(Attempt{Mode: modeC, Branch: there}), "", 0},
		"continue: only saved work":                          {nil, saved, nil, Action{}, RefusalNoBranch, workorder.ExitGit},
		"rehearse to continue: how it ended does not count":  {success, saved, with{dry, ordered}, goes(Attempt{Mode: modeC, Branch: here0, Base: "main"}), "", 0},
		"rehearse to continue: the remote is asked":          {nil, nil, with{dry}, ask, "", 0},
		"rehearse to continue without a repository":          {timeout, &Remote{}, with{dry, ordered}, again(Attempt{Mode: workorder.ModeCreate, Text: "the order's", Branch: here0, Base: "main", Lost: true}), "", 0},

		// parked
		"parked: when it resets is said":             {parkedTill, nil, nil, at(ActionReport, later), "", 0},
		"parked: wait":                               {parkedTill, nil, with{wait}, at(ActionAwaitLimit, later), "", 0},
		"parked: try now":                            {parkedTill, nil, with{atOnce}, ask, "", 0},
		"parked: the limit has reset":                {parkedPast, nil, with{wait}, ask, "", 0},
		"parked: reset unknown":                      {parkedOpen, nil, nil, ask, "", 0},
		"parked: reset unknown, wait":                {parkedOpen, nil, with{wait}, guess(limitFirst), "", 0},
		"parked: for the second time in a row":       {twice, nil, with{wait}, guess(2 * limitFirst), "", 0},
		"parked: reset unknown, waited":              {parkedOpen, nil, with{wait, waited}, ask, "", 0},
		"parked on another machine":                  {nil, theirsParked, nil, at(ActionReportRemote, later), "", 0},
		"parked on another machine: wait":            {nil, theirsParked, with{wait}, at(ActionAwaitLimit, later), "", 0},
		"parked on another machine: try now":         {nil, theirsParked, with{atOnce}, goes(Attempt{Mode: modeC, Branch: there, Base: "trunk", Number: 2}), "", 0},
		"parked on another machine, open: wait":      {nil, theirs(workorder.StatusParked, workorder.EndedByLimit), with{wait}, guess(limitFirst), "", 0},
		"parked: revise waits for the limit as well": {parkedTill, nil, with{revise}, at(ActionReport, later), "", 0},
		"parked: rebase asks no model":               {parkedTill, nil, with{rebase}, ask, "", 0},

		// revise and rebase
		"revise: done is no obstacle":         {success, nil, with{revise}, ask, "", 0},
		"revise: it runs":                     {running, nil, with{revise, inBox}, Action{}, RefusalRunning, workorder.ExitGeneral},
		"revise: the remote has nothing":      {timeout, nothing, with{revise, ordered}, Action{}, RefusalUnknown, workorder.ExitNotFound},
		"revise: done elsewhere":              {nil, theirs(done0, agent), with{revise}, goes(Attempt{Mode: workorder.ModeRevise, Branch: there, Base: "trunk", Number: 2}), "", 0},
		"revise: the feedback cannot be read": {success, away, with{revise}, Action{}, "", workorder.ExitGeneral},
		"rehearse to revise":                  {success, nil, with{revise, dry}, ask, "", 0},
		"rebase: done is no obstacle":         {success, nil, with{rebase}, ask, "", 0},
		"rebase: it runs":                     {running, nil, with{rebase, inBox}, Action{}, RefusalRunning, workorder.ExitGeneral},
		"rebase: the remote has nothing":      {timeout, nothing, with{rebase, ordered}, Action{}, RefusalUnknown, workorder.ExitNotFound},
		"rebase: failed elsewhere":            {nil, theirs(failed, workorder.EndedByValidation), with{rebase}, goes(Attempt{Mode: workorder.ModeRebase, Branch: there, Base: "trunk", Number: 2}), "", 0},
		"rebase: unknown":                     {nil, nothing, with{rebase}, Action{}, RefusalUnknown, workorder.ExitNotFound},
		"rehearse to rebase what is known":    {success, oneBranch, with{rebase, dry}, goes(Attempt{Mode: workorder.ModeRebase, Branch: here0, Base: "main"}), "", 0},
		"rehearse to rebase an unknown task":  {success, nothing, with{rebase, dry}, Action{}, RefusalUnknown, workorder.ExitNotFound},

		"revise: unknown":                              {nil, nothing, with{revise}, Action{}, RefusalUnknown, workorder.ExitNotFound},
		"revise: the file is empty":                    {success, reviewed(0), with{revise}, do(ActionNone), "", 0},
		"revise: there is no feedback":                 {success, reviewed(7), with{revise}, do(ActionNone), "", 0},
		"rehearse to revise: there is no feedback":     {success, reviewed(7), with{revise, dry}, do(ActionNone), "", 0},
		"revise: no author may ask for it":             {success, reviewed(7, false), with{revise}, do(ActionNone), "", 0},
		"revise: no author may ask, but the user does": {nil, reviewed(7, false), with{revise, says("do it")}, goes(Attempt{Mode: workorder.ModeRevise, Text: "do it", Branch: there, Base: "trunk", Number: 2}), "", 0},
		"revise: somebody asks for something":          {nil, reviewed(7, false, true), with{revise}, goes(Attempt{Mode: workorder.ModeRevise, Branch: there, Base: "trunk", Number: 2}), "", 0},

		// read
		"read: it runs":         {running, nil, with{read, inBox}, Action{}, RefusalStillRunning, workorder.ExitGeneral},
		"read: it is followed":  {running, nil, with{read, held}, Action{}, RefusalStillRunning, workorder.ExitGeneral},
		"read: it is over":      {running, nil, with{read}, do(ActionCollect), "", 0},
		"read: it is collected": {success, nil, with{read}, do(ActionReport), "", 0},

		// pr open
		"pr open: it runs":              {running, nil, with{open, inBox}, Action{}, RefusalStillRunning, workorder.ExitGeneral},
		"pr open: it is followed":       {running, nil, with{open, held}, Action{}, RefusalStillRunning, workorder.ExitGeneral},
		"pr open: over, not collected":  {running, nil, with{open}, do(ActionCollect), "", 0},
		"pr open: what is there":        {success, nil, with{open}, do(ActionReadPR), "", 0},
		"pr open: though it is held":    {success, nil, with{open, held}, do(ActionReadPR), "", 0},
		"pr open: there is no result":   {success, nil, with{open, pull(PRState{NoResult: errors.New("gone")})}, Action{}, RefusalNoResult, workorder.ExitGeneral},
		"pr open: nothing was pushed":   {success, nil, with{open, pull(PRState{NothingToOpen: "no branch"})}, Action{}, RefusalNothingToOpen, workorder.ExitGeneral},
		"pr open: there is no token":    {success, nil, with{open, pull(PRState{Repo: "r"})}, Action{}, RefusalNoToken, workorder.ExitGit},
		"pr open: all there is to have": {success, nil, with{open, pull(PRState{Repo: "r", Token: true})}, do(ActionOpenPR), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := State{Request: Request{Verb: Continue, Task: id}, Time: now, Record: c.rec, LastAtStart: "a1", Remote: c.on}
			for _, f := range c.with {
				s = f(s)
			}
			got, err := Next(s)
			if c.code != 0 {
				c.want = Action{}
			}
			if (got.Message != "") != (got.Kind == ActionNone) {
				t.Errorf("%s says %q", got.Kind, got.Message)
			}
			got.Message = ""
			if diff := cmp.Diff(c.want, got); diff != "" || exiterr.Code(err) != c.code {
				t.Errorf("%s\nexit %d, want %d: %v", diff, exiterr.Code(err), c.code, err)
			}
			refusal, ok := errors.AsType[*Refusal](err)
			if ok != (c.why != "") || ok && refusal.Code != c.why {
				t.Errorf("refused: %+v, want %q", refusal, c.why)
			}
			// All but a wrong branch, which names the right one, say what to do.
			if ok && c.why != RefusalOtherBranch && exiterr.Hint(err) == "" {
				t.Errorf("%v has no hint", err)
			}
		})
	}
}
