package workorder

import (
	"fmt"
	"slices"
	"strings"
)

// Reason is why something ended: Code for programs, Detail in one clause for people.
type Reason struct {
	Code   ReasonCode `json:"code"`
	Detail string     `json:"detail"`
}

// Reasons are the reasons of an ending. The first is decisive. A success has none.
type Reasons []Reason

// Because returns a single reason.
func Because(code ReasonCode, format string, args ...any) Reasons {
	return Reasons{{Code: code, Detail: fmt.Sprintf(format, args...)}}
}

// And returns the list with one more reason at its end. r is not changed.
func (r Reasons) And(code ReasonCode, format string, args ...any) Reasons {
	return append(slices.Clip(r), Because(code, format, args...)...)
}

// Code returns the code of the first reason; "" if there is none.
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

// Of returns the reasons with that code.
func (r Reasons) Of(code ReasonCode) Reasons {
	return slices.DeleteFunc(slices.Clone(r), func(one Reason) bool { return one.Code != code })
}

// Without returns the list without the reasons of that code. r is not changed.
func (r Reasons) Without(code ReasonCode) Reasons {
	return slices.DeleteFunc(slices.Clone(r), func(one Reason) bool { return one.Code == code })
}

// String returns all reasons as a sentence.
func (r Reasons) String() string {
	var list []string
	for _, one := range r {
		if one.Detail != "" {
			list = append(list, one.Detail)
		}
	}
	return strings.Join(list, "; ")
}

// Each returns the list with f applied to every detail. r is not changed.
func (r Reasons) Each(f func(string) string) Reasons {
	r = slices.Clone(r)
	for i := range r {
		r[i].Detail = f(r[i].Detail)
	}
	return r
}

// LegacyReason has the reasons as a sentence and a code, for scripts and for older versions, which write nothing else.
type LegacyReason struct {
	Reason     string     `json:"reason"`
	ReasonCode ReasonCode `json:"reason_code"` // of the decisive reason
}

// Legacy returns r for scripts, which is written in addition to the list.
func (r Reasons) Legacy() LegacyReason { return LegacyReason{r.String(), r.Code()} }

// Listed returns the list that was read together with s; if an older version wrote no list, the one reason of s.
func (s LegacyReason) Listed(list Reasons) Reasons {
	if len(list) > 0 || s == (LegacyReason{}) {
		return list
	}
	return Reasons{{Code: s.ReasonCode, Detail: s.Reason}}
}

// Ending is the outcome of an attempt, or of a part of it.
type Ending struct {
	Status  Status
	EndedBy EndedBy
	Reasons Reasons // empty on success
}

// Succeeded returns the ending of a success.
func Succeeded() Ending { return Ending{Status: StatusSuccess, EndedBy: EndedByAgent} }

// ReasonCode is the machine-readable reason of an ending, finer than Status and EndedBy.
type ReasonCode string

// Codes of decisive reasons.
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
	ReasonBadResult ReasonCode = "result_not_valid" // a box of another version, or a compromised one

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

	// Steps before the agent. ReasonStep is for steps without a code of their own.
	ReasonBoot     ReasonCode = "boot_failed" // the process that runs the steps died
	ReasonStep     ReasonCode = "step_failed"
	ReasonClone    ReasonCode = "clone_failed"
	ReasonServices ReasonCode = "services_failed"
	ReasonSetup    ReasonCode = "setup_failed"

	// The agent.
	ReasonAgent     ReasonCode = "agent_failed"
	ReasonNoAgent   ReasonCode = "agent_not_started" // its program is missing or cannot be run
	ReasonModelName ReasonCode = "model_unknown"     // the provider does not know the model, or not for this key
	ReasonHang      ReasonCode = "agent_hung"
	ReasonModelKey  ReasonCode = "model_key_refused"
	ReasonRoute     ReasonCode = "model_unreachable" // no name, no route, or connection refused
	ReasonDenied    ReasonCode = "tools_denied"      // it changed nothing; its tool calls were denied
	ReasonUnchanged ReasonCode = "nothing_changed"
	ReasonNoPlan    ReasonCode = "no_plan"

	// ReasonUnread is an additional reason: a line of the agent's output was too long to read.
	ReasonUnread ReasonCode = "output_not_read"

	// Reasons about the work.
	ReasonValidation ReasonCode = "validation_failed"
	ReasonWorse      ReasonCode = "worse_than_before" // a rebase: checks fail that passed before
	// what failed before the task still does: all of an unproven task, some of a success
	ReasonAsBefore   ReasonCode = "fails_as_before"
	ReasonConflicts  ReasonCode = "conflicts"              // a rebase, and no agent may resolve them
	ReasonUnresolved ReasonCode = "conflicts_not_resolved" // in a rebase, or left by an agent
	ReasonRebase     ReasonCode = "rebase_failed"
	// ReasonLanding: the commits could not be read or pushed, and BundleFile is incomplete.
	ReasonLanding ReasonCode = "landing_failed"
	// ReasonPush: the push failed, and BundleFile has everything to push.
	ReasonPush ReasonCode = "push"
	// ReasonSecret: commits contain the value of a secret and were not pushed; BundleFile has them.
	ReasonSecret ReasonCode = "secret_in_commits"
	// ReasonUncommitted: changes of the agent could not be committed; they are kept as files.
	ReasonUncommitted ReasonCode = "uncommitted"
	// ReasonLost: changes of the agent could be neither committed nor kept as files; only the box has them.
	ReasonLost ReasonCode = "uncommitted_in_box"
	// ReasonLeft: the commits up to HeadSHA could be neither pushed nor kept in BundleFile in time; only the box has them.
	ReasonLeft ReasonCode = "left_in_box"
	// ReasonUnsaved is an additional reason: how much work was lost with a box.
	ReasonUnsaved ReasonCode = "not_saved"
	// ReasonServiceLost is an additional reason: a service failed during the attempt.
	ReasonServiceLost ReasonCode = "service_lost"
)

// Reasons why a part of a proof is missing, in addition to ReasonSetup.
const (
	ReasonSameCommit   ReasonCode = "same_commit"    // base and head are equal
	ReasonNoBase       ReasonCode = "no_base_commit" // the task began without a commit, or the remote no longer has it
	ReasonNoTime       ReasonCode = "no_time"
	ReasonNoCleanRoom  ReasonCode = "no_clean_place"  // no clean room for a side
	ReasonRoomNotClean ReasonCode = "place_not_clean" // leftovers of the agent may be visible in it
	ReasonRemains      ReasonCode = "not_removed"     // leftovers of a side, or containers of the agent
	ReasonCheckout     ReasonCode = "no_checkout"
	ReasonWorkspace    ReasonCode = "names_workspace" // a check that uses the agent's workspace
	ReasonCheck        ReasonCode = "check_not_run"
	ReasonNotRead      ReasonCode = "change_not_read" // flags may be missing
	ReasonPages        ReasonCode = "pages_not_seen"
)

// ReasonCodes returns every reason code.
func ReasonCodes() []ReasonCode {
	return []ReasonCode{
		ReasonSignal, ReasonByUser, ReasonOnRequest, ReasonKilled, ReasonVanished, ReasonUnseen, ReasonOverdue, ReasonLease,
		ReasonNotReady, ReasonBadResult, ReasonTimeout, ReasonDisk, ReasonMemory, ReasonBudget, ReasonProviderLimit, ReasonOrder, ReasonPlan,
		ReasonNoTask, ReasonBoot, ReasonStep, ReasonClone, ReasonServices, ReasonSetup, ReasonAgent, ReasonNoAgent, ReasonModelName,
		ReasonRoute, ReasonHang, ReasonModelKey, ReasonDenied,
		ReasonUnchanged, ReasonNoPlan, ReasonUnread, ReasonValidation, ReasonWorse, ReasonAsBefore, ReasonConflicts, ReasonUnresolved,
		ReasonRebase, ReasonLanding, ReasonPush, ReasonSecret,
		ReasonUncommitted, ReasonLost, ReasonLeft, ReasonUnsaved, ReasonServiceLost,
		ReasonSameCommit, ReasonNoBase, ReasonNoTime, ReasonNoCleanRoom, ReasonRoomNotClean, ReasonRemains, ReasonCheckout, ReasonWorkspace,
		ReasonCheck, ReasonNotRead, ReasonPages,
	}
}
