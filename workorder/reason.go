package workorder

import (
	"fmt"
	"slices"
	"strings"
)

// Reason is why something ended as it did: Code for a program, Detail in one clause for a person.
type Reason struct {
	Code   ReasonCode `json:"code"`
	Detail string     `json:"detail"`
}

// Reasons are the reasons of one ending. The first decided it, the others came on top. A success has none.
type Reasons []Reason

// Because is a single reason.
func Because(code ReasonCode, format string, args ...any) Reasons {
	return Reasons{{Code: code, Detail: fmt.Sprintf(format, args...)}}
}

// And is the list with one more reason at its end. r is not changed.
func (r Reasons) And(code ReasonCode, format string, args ...any) Reasons {
	return append(slices.Clip(r), Because(code, format, args...)...)
}

// Code is that of the first reason; "" when there is none.
func (r Reasons) Code() ReasonCode {
	if len(r) == 0 {
		return ""
	}
	return r[0].Code
}

// Has reports whether one of the reasons has the code.
func (r Reasons) Has(code ReasonCode) bool {
	return slices.ContainsFunc(r, func(one Reason) bool { return one.Code == code })
}

// Of is the list of the reasons of that code.
func (r Reasons) Of(code ReasonCode) Reasons {
	return slices.DeleteFunc(slices.Clone(r), func(one Reason) bool { return one.Code != code })
}

// Without is the list without the reasons of that code. r is not changed.
func (r Reasons) Without(code ReasonCode) Reasons {
	return slices.DeleteFunc(slices.Clone(r), func(one Reason) bool { return one.Code == code })
}

// String is all of it as a sentence for a person.
func (r Reasons) String() string {
	var list []string
	for _, one := range r {
		if one.Detail != "" {
			list = append(list, one.Detail)
		}
	}
	return strings.Join(list, "; ")
}

// Each is the list with every detail as f makes it. r is not changed.
func (r Reasons) Each(f func(string) string) Reasons {
	r = slices.Clone(r)
	for i := range r {
		r[i].Detail = f(r[i].Detail)
	}
	return r
}

// Said is a list of reasons as scripts read it, and programs of older versions, which write nothing else.
type Said struct {
	Reason     string     `json:"reason"`
	ReasonCode ReasonCode `json:"reason_code"` // of the decisive reason
}

// Said is r for scripts, which is written beside the list.
func (r Reasons) Said() Said { return Said{r.String(), r.Code()} }

// Listed is the list that was read beside s; the only reason of s where an older version wrote no list.
func (s Said) Listed(list Reasons) Reasons {
	if len(list) > 0 || s == (Said{}) {
		return list
	}
	return Reasons{{Code: s.ReasonCode, Detail: s.Reason}}
}

// Ending is how a run, or a part of it, ended.
type Ending struct {
	Status  Status
	EndedBy EndedBy
	Reasons Reasons // empty on success
}

// Succeeded is the ending of what went well.
func Succeeded() Ending { return Ending{Status: StatusSuccess, EndedBy: ByAgent} }

// ReasonCode says for a program why something ended, finer than Status and EndedBy.
type ReasonCode string

// These decide an ending.
const (
	// From outside.
	ReasonSignal    ReasonCode = "signal"           // the box got a stop signal
	ReasonByUser    ReasonCode = "interrupted"      // Ctrl-C in the terminal of the run
	ReasonOnRequest ReasonCode = "stop_requested"   // `sandbox-agent stop`
	ReasonKilled    ReasonCode = "kill_requested"   // `sandbox-agent stop --kill`, or a second Ctrl-C
	ReasonVanished  ReasonCode = "box_vanished"     // without a result
	ReasonUnseen    ReasonCode = "box_unseen"       // the engine does not answer; the box may live on
	ReasonOverdue   ReasonCode = "overdue"          // the box did not end by itself
	ReasonLease     ReasonCode = "lease_taken"      // another box works on the task
	ReasonNotReady  ReasonCode = "not_started"      // the host could not start the box
	ReasonBadResult ReasonCode = "result_not_valid" // a box of another version, or one that was taken over

	// Limits.
	ReasonTimeout       ReasonCode = "timeout"
	ReasonDisk          ReasonCode = "disk_limit"
	ReasonMemory        ReasonCode = "out_of_memory"
	ReasonBudget        ReasonCode = "budget"
	ReasonProviderLimit ReasonCode = "provider_limit"

	// The order.
	ReasonOrder  ReasonCode = "order_refused"
	ReasonPlan   ReasonCode = "task_is_a_plan" // which is carried out by another task
	ReasonNoTask ReasonCode = "no_task_text"

	// Steps before the agent. Step is the one of a step that has no code of its own.
	ReasonBoot     ReasonCode = "boot_failed" // the process that runs the steps died
	ReasonStep     ReasonCode = "step_failed"
	ReasonClone    ReasonCode = "clone_failed"
	ReasonServices ReasonCode = "services_failed"
	ReasonSetup    ReasonCode = "setup_failed"

	// The agent.
	ReasonAgent     ReasonCode = "agent_failed"
	ReasonNoAgent   ReasonCode = "agent_not_started" // its program is not there, or cannot be run
	ReasonModelName ReasonCode = "model_unknown"     // the provider does not know the model, or not for this key
	ReasonHang      ReasonCode = "agent_hung"
	ReasonModelKey  ReasonCode = "model_key_refused"
	ReasonRoute     ReasonCode = "model_unreachable" // no name, no route, or nobody listens
	ReasonDenied    ReasonCode = "tools_denied"      // it changed nothing, calls of its tools were denied
	ReasonUnchanged ReasonCode = "nothing_changed"
	ReasonNoPlan    ReasonCode = "no_plan"

	// ReasonUnread comes on top: a line of the agent's output was too long to be read.
	ReasonUnread ReasonCode = "output_not_read"

	// These say what came of the work.
	ReasonValidation ReasonCode = "validation_failed"
	ReasonWorse      ReasonCode = "worse_than_before"      // a rebase: checks fail that did not
	ReasonAsBefore   ReasonCode = "fails_as_before"        // what failed before the task still does: all of an unproven task, some of a success
	ReasonConflicts  ReasonCode = "conflicts"              // a rebase, and no agent may resolve them
	ReasonUnresolved ReasonCode = "conflicts_not_resolved" // of a rebase, or that an agent left
	ReasonRebase     ReasonCode = "rebase_failed"
	// ReasonLanding: the commits could not be read or pushed, and BundleFile does not have them all.
	ReasonLanding ReasonCode = "landing_failed"
	// ReasonPush: the push failed, and all that is to be pushed is in BundleFile.
	ReasonPush ReasonCode = "push"
	// ReasonSecret: commits have the value of a secret, and were not pushed; they are in BundleFile.
	ReasonSecret ReasonCode = "secret_in_commits"
	// ReasonUncommitted: changes of the agent's could not be committed; they are kept as files.
	ReasonUncommitted ReasonCode = "uncommitted"
	// ReasonLost: changes of the agent's could be neither committed nor kept as files; only the box has them.
	ReasonLost ReasonCode = "uncommitted_in_box"
	// ReasonLeft: what is to be pushed could be neither pushed nor kept in BundleFile in time; it is in the box, up to HeadSHA.
	ReasonLeft ReasonCode = "left_in_box"
	// ReasonUnsaved comes on top: how much of the work a box took with it.
	ReasonUnsaved ReasonCode = "not_saved"
	// ReasonServiceLost comes on top: a service failed during the run.
	ReasonServiceLost ReasonCode = "service_lost"
)

// These say what of a proof is missing. ReasonSetup is one of them, too.
const (
	ReasonSameCommit ReasonCode = "same_commit"    // base and head are one
	ReasonNoBase     ReasonCode = "no_base_commit" // the task began without a commit, or the remote has it no more
	ReasonNoTime     ReasonCode = "no_time"
	ReasonNoPlace    ReasonCode = "no_clean_place"  // to run a side in
	ReasonWeakPlace  ReasonCode = "place_not_clean" // what the agent left may be seen in it
	ReasonRemains    ReasonCode = "not_removed"     // what a side left, or containers of the agent's
	ReasonCheckout   ReasonCode = "no_checkout"
	ReasonWorkspace  ReasonCode = "names_workspace" // a check that looks at where the agent worked
	ReasonCheck      ReasonCode = "check_not_run"
	ReasonNotRead    ReasonCode = "change_not_read" // flags may be missing
	ReasonPages      ReasonCode = "pages_not_seen"
)

// ReasonCodes lists every reason code.
func ReasonCodes() []ReasonCode {
	return []ReasonCode{
		ReasonSignal, ReasonByUser, ReasonOnRequest, ReasonKilled, ReasonVanished, ReasonUnseen, ReasonOverdue, ReasonLease,
		ReasonNotReady, ReasonBadResult, ReasonTimeout, ReasonDisk, ReasonMemory, ReasonBudget, ReasonProviderLimit, ReasonOrder, ReasonPlan,
		ReasonNoTask, ReasonBoot, ReasonStep, ReasonClone, ReasonServices, ReasonSetup, ReasonAgent, ReasonNoAgent, ReasonModelName, ReasonRoute, ReasonHang, ReasonModelKey, ReasonDenied,
		ReasonUnchanged, ReasonNoPlan, ReasonUnread, ReasonValidation, ReasonWorse, ReasonAsBefore, ReasonConflicts, ReasonUnresolved, ReasonRebase, ReasonLanding, ReasonPush, ReasonSecret,
		ReasonUncommitted, ReasonLost, ReasonLeft, ReasonUnsaved, ReasonServiceLost,
		ReasonSameCommit, ReasonNoBase, ReasonNoTime, ReasonNoPlace, ReasonWeakPlace, ReasonRemains, ReasonCheckout, ReasonWorkspace,
		ReasonCheck, ReasonNotRead, ReasonPages,
	}
}
