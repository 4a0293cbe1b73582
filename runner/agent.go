package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/runner/harness"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Logs of the agent's first run, relative to Config.OutDir. Each later round has its own directory.
const (
	AgentStdout     = workorder.LogsDir + "/agent.stdout.log"
	AgentStderr     = workorder.LogsDir + "/agent.stderr.log"
	AgentTranscript = workorder.LogsDir + "/agent.transcript.jsonl"
)

var (
	errBudget = errors.New("max_budget_usd was reached")
	errHalt   = errors.New("no point in continuing")
	errHang   = errors.New("no sign of life")
	errLimit  = errors.New("a limit of the model's provider")
	errRoute  = errors.New("the model's server is unreachable")
)

// tailSize is how many bytes of the end of an output are kept to explain a failure.
const tailSize = 4 << 10

// AgentOutcome reports how the agent ended.
type AgentOutcome struct {
	// Ending is StatusSuccess if the agent finished. It does not cover changes or validation.
	workorder.Ending
	// ResumeAt is when a parked agent can continue; nil if unknown.
	ResumeAt *time.Time
	Agent    workorder.Agent
	Usage    workorder.Usage
	Denials  int
	// Evidence lists the files saved below Config.OutDir.
	Evidence []workorder.Evidence
	Warnings []string
}

// agentRun is one run of the agent: one process, or two if the first hung.
type agentRun struct {
	Config
	began   time.Time
	harness harness.Harness
	run     harness.Input
	cmd     harness.Invocation
	// before is the outcome of the earlier processes of this run.
	before harness.Outcome
	others *proc.ProcessSet

	notices  *notices
	toldForm bool // the agent was notified of malformed answers
	money    *spending
	wire     *agentUsage
	hangs    int
	evidence []workorder.Evidence

	// Until the process has ended, only the goroutine that reads standard output uses it.
	parser  harness.Parser
	stop    context.CancelCauseFunc // of this process
	heard   atomic.Int64            // lines read from both outputs
	longest int64                   // length in bytes of the longest line that was too long to parse; 0 if none

	output, events     *rateLimiter // lines that are not events; messages and actions of the agent
	stdout, stderr     *proc.Tail
	outLog, errLog     io.Closer
	outClean, errClean io.WriteCloser
}

// Agent runs the order's agent until it ends or ctx does. Errors are part of the outcome.
func Agent(ctx context.Context, c Config) AgentOutcome {
	began := time.Now()
	h, err := harness.For(c.Order.Harness.Name)
	if err != nil {
		return c.notStarted(workorder.EndedByOrder, err)
	}
	text := cmp.Or(c.Prompt, c.Order.Task)
	if len(c.Notes) > 0 && h.Name() != workorder.HarnessCommand {
		text += "\n\n# Notes of the sandbox\n\n- " + strings.Join(c.Notes, "\n- ") + "\n"
	}
	prompt, remove, err := writePrompt(harness.Prompted(h, c.Order, text), c.User)
	if err != nil {
		return c.notStarted(workorder.EndedByBox, err)
	}
	defer remove()
	n, err := newNotices()
	if err != nil {
		return c.notStarted(workorder.EndedByBox, err)
	}
	defer n.remove()
	run := harness.Input{
		Order: c.Order, SessionID: newUUID(), PromptFile: prompt, NoticeFile: n.file,
		Workspace: c.Workspace, Home: c.Home, Env: c.env(),
	}
	cmd, err := h.Command(run)
	if err != nil {
		return c.notStarted(workorder.EndedByOrder, err)
	}
	wire := newAgentUsage(c.Meter, c.Order.MaxBudgetUSD)
	if err := c.checkVersion(ctx, h); err != nil {
		return c.notStarted(workorder.EndedByOrder, err)
	}
	c.emit(workorder.Event{Type: workorder.EventAgentStarted, Name: h.Name(), Text: c.Order.Harness.Version})

	n.harness, n.run, n.emit = h, run, c.emit
	n.budget, n.earlier, n.began, n.deadline = c.Order.MaxBudgetUSD, c.SpentUSD, began, c.Deadline
	a := &agentRun{
		Config: c, began: began, harness: h, run: run, cmd: cmd, notices: n, wire: wire,
		stdout: proc.NewTail(tailSize), stderr: proc.NewTail(tailSize),
	}
	a.money = &spending{
		wire: wire, costs: newCosts(h, run), notices: n, budget: c.Order.MaxBudgetUSD, emit: c.emit,
		over: func() { a.stop(errBudget) },
	}
	a.output = newRateLimiter(a.emit, c.logName(AgentStdout), func(text string) workorder.Event {
		return workorder.Event{Type: workorder.EventAgentOutput, Name: "stdout", Text: text}
	})
	a.events = newRateLimiter(a.emit, c.logName(AgentStdout), func(text string) workorder.Event {
		return workorder.Event{Type: workorder.EventAgentText, Text: text}
	})
	out := a.work(ctx)
	exit := out.Agent.ExitCode
	if exit != nil && *exit == 0 && out.Status != workorder.StatusSuccess {
		exit = nil // an agent may exit with 0 after it was stopped
	}
	c.emit(workorder.Event{
		Type: workorder.EventAgentFinished, Name: h.Name(), Status: string(out.Status), ExitCode: exit,
		DurationMS: time.Since(began).Milliseconds(), Text: out.Reasons.String(),
	})
	return out
}

func (c *Config) notStarted(by workorder.EndedBy, err error) AgentOutcome {
	return AgentOutcome{
		Ending: ending(workorder.StatusError, by, workorder.ReasonNoAgent, c.text(err.Error())),
		Agent:  workorder.Agent{Harness: c.Order.Harness.Name, Model: c.Order.Harness.Model},
	}
}

type processEnd struct {
	startErr error
	cause    error // why it was stopped; nil if it ended by itself
	exit     harness.Exit
	outcome  harness.Outcome
	oom      bool
	hang     *hang
	left     int // processes that could not be killed
}

// work runs the agent, and resumes it once after a hang if possible.
func (a *agentRun) work(ctx context.Context) AgentOutcome {
	if err := a.openLogs(); err != nil {
		return a.notStarted(workorder.EndedByBox, err)
	}
	if a.User != nil {
		a.others = proc.SnapshotProcesses(a.User.UID, nil)
	}
	var out AgentOutcome
	end := a.process(ctx)
	if ctx.Err() == nil && a.resumes(&end) {
		if again, err := a.again(ctx, &end); err != nil {
			out.Warnings = append(out.Warnings, a.text("the agent could not continue after the hang: "+err.Error()))
		} else {
			end = again
		}
	}
	if err := a.closeLogs(); err != nil {
		out.Warnings = append(out.Warnings, a.text("the agent's logs are incomplete: "+err.Error()))
	}
	if end.startErr != nil {
		failed := a.notStarted(workorder.EndedByAgent, end.startErr)
		failed.Status = workorder.StatusFailed // the program that the task names does not exist: this is not an internal error
		failed.Warnings = out.Warnings
		return failed
	}
	a.conclude(ctx, &out, &end)
	return out
}

func (a *agentRun) resumes(end *processEnd) bool {
	return end.hang != nil && a.canResume() && !a.wire.spent() && a.wire.long(time.Now()) == nil && end.outcome.Verdict != harness.Limited &&
		end.outcome.Verdict != harness.Budget
}

// canResume is called during a hang. It allows one resumption if the harness supports it and budget is left.
func (a *agentRun) canResume() bool {
	_, ok := a.harness.(harness.Resumer)
	b := a.Order.MaxBudgetUSD
	return ok && a.hangs <= 1 && (b == nil || a.money.sofar() < *b)
}

func (a *agentRun) again(ctx context.Context, first *processEnd) (processEnd, error) {
	prompt, remove, err := writePrompt(afterHang(first.hang), a.User)
	if err != nil {
		return processEnd{}, err
	}
	defer remove()
	a.before, a.money.before = first.outcome, first.outcome.Usage
	a.run.PromptFile = prompt
	if b := a.Order.MaxBudgetUSD; b != nil {
		rest := *a.Order // the agent counts only the new process
		rest.MaxBudgetUSD = new(*b - a.money.sofar())
		a.run.Order = &rest
	}
	resumer, ok := a.harness.(harness.Resumer)
	if !ok {
		return processEnd{}, fmt.Errorf("harness %s cannot resume", a.harness.Name())
	}
	if a.cmd, err = resumer.Resume(a.run); err != nil {
		return processEnd{}, err
	}
	a.money.costs.next()
	end := a.process(ctx)
	return end, end.startErr
}

func (a *agentRun) openLogs() error {
	outLog, err := a.logFile(a.logName(AgentStdout))
	if err != nil {
		return err
	}
	errLog, err := a.logFile(a.logName(AgentStderr))
	if err != nil {
		return errors.Join(err, outLog.Close())
	}
	a.outLog, a.errLog = outLog, errLog
	a.outClean = a.Redact.Writer(io.MultiWriter(outLog, a.stdout))
	a.errClean = a.Redact.Writer(io.MultiWriter(errLog, a.stderr))
	return nil
}

func (a *agentRun) closeLogs() error {
	a.output.close()
	a.events.close()
	return errors.Join(a.outClean.Close(), a.errClean.Close(), a.outLog.Close(), a.errLog.Close())
}

func (a *agentRun) process(ctx context.Context) (end processEnd) {
	ctx, a.stop = context.WithCancelCause(ctx)
	defer a.stop(nil)
	stdin, err := os.Open(a.run.PromptFile)
	if err != nil {
		return processEnd{startErr: fmt.Errorf("open prompt: %w", err)}
	}
	defer func() { _ = stdin.Close() }()
	a.parser = a.harness.Parser(a.run)
	outLines, errLines := text.NewLines(text.MaxLine, a.stdoutLine), text.NewLines(text.MaxLine, a.stderrLine)
	oomBefore := a.oomKills()
	p, err := proc.Start(ctx, proc.Spec{
		Argv: a.cmd.Argv, Dir: a.Workspace, Env: a.env(a.cmd.Env...), User: a.User,
		// The file itself instead of a copy: an agent that never reads its input blocks nothing.
		Stdin:  stdin,
		Stdout: io.MultiWriter(a.outClean, outLines), Stderr: io.MultiWriter(a.errClean, errLines),
		StopSignal: a.cmd.Stop[0], Grace: a.limits().grace, OOMScoreAdj: oomScore,
	})
	if err != nil {
		return processEnd{startErr: err}
	}
	waitErr := a.watch(ctx, p, &end)
	outLines.Close()
	errLines.Close()
	end.oom = a.oomKills() > oomBefore
	end.exit = harness.Exit{Code: proc.ExitCode(waitErr), Stderr: a.stderr.String()}
	if ee, ok := errors.AsType[*proc.ExitError](waitErr); ok && ee.Signal != 0 {
		end.exit.Signal = unix.SignalName(ee.Signal)
	}
	end.outcome = a.parser.End(end.exit)
	if cost := a.money.costs.read(); end.outcome.Usage.CostUSD == nil && cost != nil {
		end.outcome.Usage.CostUSD, end.outcome.Usage.CostSource = cost, workorder.CostByHarness
	}
	if usd := end.outcome.Usage.CostUSD; usd != nil {
		a.money.note(*usd)
	}
	return end
}

func (a *agentRun) conclude(ctx context.Context, out *AgentOutcome, end *processEnd) {
	o := end.outcome
	if a.before.Verdict != "" {
		// A stopped process may not report its usage; the session's transcript has it.
		o.Usage = larger(a.money.inAll(o.Usage), o.InSession)
		o.Turns += a.before.Turns
		o.Denials += a.before.Denials
		for _, w := range a.before.Warnings {
			if !slices.Contains(o.Warnings, w) {
				o.Warnings = append(o.Warnings, w)
			}
		}
	}
	o.Usage = a.wire.final(ctx, o.Usage)
	a.money.conclude(o.Usage)
	if rec, ok := a.harness.(harness.Recorder); ok {
		if err := a.keepTranscript(rec); err != nil {
			o.Warnings = append(o.Warnings, "the agent's transcript was not kept: "+err.Error())
		}
	}
	if end.left > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d processes of the agent could not be killed", end.left))
	}
	out.Ending = agentEnding(agentFacts{
		cause: end.cause, exit: end.exit, outcome: o, oom: end.oom, hang: end.hang, hangs: a.hangs, halt: a.parser.StopReason(),
		limit: a.wire.long(time.Now()), budget: a.Order.MaxBudgetUSD, spent: a.money.sofar(), earlier: a.SpentUSD, refused: a.wire.spent(),
		route: a.wire.unreachable(),
	})
	if a.longest > 0 {
		why := fmt.Sprintf("the agent printed a line of %d MiB, too long to parse: its content, such as the result, is unknown", a.longest>>20)
		out.Warnings = append(out.Warnings, why)
		if out.Status != workorder.StatusSuccess {
			out.Reasons = out.Reasons.And(workorder.ReasonUnread, "%s", why)
		}
	}
	for i := range out.Reasons {
		out.Reasons[i].Detail = a.text(out.Reasons[i].Detail)
	}
	if out.Status == workorder.StatusParked {
		out.ResumeAt = believed(o.ResumeAt, time.Now())
		if l := a.wire.limit(time.Now()); out.ResumeAt == nil && l != nil {
			out.ResumeAt = believed(new(l.Until.UTC().Round(time.Second)), time.Now())
		}
	}
	out.Usage, out.Denials, out.Evidence = o.Usage, o.Denials, a.evidence
	for _, w := range o.Warnings {
		out.Warnings = append(out.Warnings, a.text(w))
	}
	// An agent that sent no request through the gateway, and reports none, spent nothing.
	idle := a.Meter != nil && sameTokens(o.Usage, workorder.Usage{})
	if a.Order.MaxBudgetUSD != nil && o.Usage.CostUSD == nil && !idle {
		out.Warnings = append(out.Warnings, "max_budget_usd could not be enforced: the cost of the models is unknown")
	}
	model := cmp.Or(o.Model, a.Order.Harness.Model)
	out.Agent = workorder.Agent{
		Harness: a.harness.Name(), Version: o.Version, Model: a.text(model), ExitCode: &end.exit.Code,
		SessionID: a.text(o.SessionID), Turns: o.Turns, Final: a.text(o.Final),
	}
}

// believed returns the reset time that an agent reports for a limit, or nil if it is implausible.
func believed(at *time.Time, now time.Time) *time.Time {
	if at == nil || at.Before(now) || at.Sub(now) > workorder.MaxPark {
		return nil
	}
	return at
}
