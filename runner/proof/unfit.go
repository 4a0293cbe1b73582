package proof

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// cannotRun matches a line with which a check says that it could not begin: its program or a file is missing, or it
// found no tests. On base this means that the check was guessed wrongly, or that the sandbox lacks something.
var cannotRun = lazyregexp.New(`(?i)command not found|: not found$|: No such file( or directory)?$|\bError 12[67]$|` +
	`executable file not found|No module named|Cannot find module|no such command|missing script|No rule to make target|` +
	`command "[^"]*" is not defined|task '[^']*' not found|could not determine executable|ENOENT|` +
	`no tests? (files? )?(ran|found|executed|were found)|collected 0 items|matched no packages|no test specified`)

// unfit returns why a check did not run on base; "" if it ran. log is its output.
func unfit(base *workorder.CheckRun, log []byte) string {
	if base.Passed || base.Tests != nil && base.Tests.Passed+base.Tests.Failed > 0 {
		return ""
	}
	const notExecutable, notFound, last = 126, 127, 64 << 10
	log = log[max(0, len(log)-last):]
	for line := range bytes.Lines(log) {
		if line = bytes.TrimSpace(line); cannotRun.Match(line) {
			return string(line)
		}
	}
	if base.ExitCode == notExecutable || base.ExitCode == notFound {
		return fmt.Sprintf("exit %d", base.ExitCode)
	}
	return ""
}

// Endless returns the checks of a detected order that did not end on a commit within their time.
func (k *BaseRuns) Endless(commit string, o *workorder.Order) (list []workorder.LeftOut) {
	for _, b := range k.Of(commit, o) {
		if o.Found && b.Result.ExitCode == exitTimeout {
			list = append(list, endless(b.Name, o))
		}
	}
	return list
}

func endless(name string, o *workorder.Order) workorder.LeftOut {
	return workorder.LeftOut{Name: name, Reason: fmt.Sprintf("it does not end within %s on base", round(o.CheckLimit()))}
}

// leaveOutEndless leaves out detected checks that did not end on base, so that they do not use up head's time.
func (r *run) leaveOutEndless() {
	r.leaveOut(func(c *check) (reason string) {
		if b := c.base.last(); b != nil && b.ExitCode == exitTimeout {
			reason = endless(c.Name, r.Order).Reason
		}
		return reason
	})
}

// leaveOutUnfit leaves out detected checks that could not run on base, and fail on head.
func (r *run) leaveOutUnfit() {
	r.leaveOut(func(c *check) (reason string) {
		b, h := c.base.last(), c.head.last()
		if b == nil || h != nil && h.Passed {
			return ""
		}
		if reason = unfit(b, r.known(c).Log); reason != "" {
			reason = "it cannot run on base: " + reason
		}
		return reason
	})
}

// leaveOut leaves out the checks of a detected order for which there is a reason.
func (r *run) leaveOut(why func(*check) string) {
	if !r.Order.Found {
		return
	}
	r.checks = slices.DeleteFunc(r.checks, func(c *check) bool {
		reason := why(c)
		if reason != "" {
			r.proof.LeftOut = append(r.proof.LeftOut, workorder.LeftOut{
				Name: r.shown(c.Name, shownText), Reason: r.shown(strings.ToValidUTF8(reason, "?"), shownText),
			})
		}
		return reason != ""
	})
}
