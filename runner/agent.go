package runner

import (
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

// Logs of the agent's first run, relative to Config.OutDir. Those of Config.Round are in a folder of their own.
const (
	AgentStdout     = workorder.LogsDir + "/agent.stdout.log"
	AgentStderr     = workorder.LogsDir + "/agent.stderr.log"
	AgentTranscript = workorder.LogsDir + "/agent.transcript.jsonl"
)

// Why we ourselves stop an agent.
var (
	errBudget = errors.New("max_budget_usd was reached")
	errHalt   = errors.New("going on is pointless")
	errHang   = errors.New("no sign of life")
	errLimit  = errors.New("a limit of the model's provider")
	errRoute  = errors.New("the model's server cannot be reached")
)

// tailSize is how much of the end of an output explains a failure, in bytes.
const tailSize = 4 << 10

// AgentOutcome is how the agent ended.
type AgentOutcome struct {
	// Ending is StatusSuccess when the agent did its part; it says nothing about
	// changes or validation yet.
	workorder.Ending
	// ResumeAt is when a parked agent can go on; nil means nobody knows.
	ResumeAt *time.Time
	Agent    workorder.Agent
	Usage    workorder.Usage
	Denials  int
	// Evidence was saved below Config.OutDir.
	Evidence []workorder.Evidence
	Warnings []string
}

// agentRun is one agent from start to end: one process, or two when the first hung.
type agentRun struct {
	Config
	began   time.Time
	harness harness.Harness
	run     harness.Run
	cmd     harness.Command
	// before is what the processes before this one made of it.
	before harness.Outcome
	others *proc.Crowd

	notices  *notices
	toldForm bool // that its answers have another form
	money    *spending
	wire     *wire
	hangs    int
	evidence []workorder.Evidence

	// The standard output's goroutine alone uses it until the process is done.
	parser  harness.Parser
	stop    context.CancelCauseFunc // of this process
	heard   atomic.Int64            // lines of both outputs
	longest int64                   // line of the output that was too long to be read, in bytes; 0 means none

	output, events     *flow // lines that are no events; what the agent says and does
	stdout, stderr     *proc.Tail
	outLog, errLog     io.Closer
	outClean, errClean io.WriteCloser
}

// Agent runs the order's agent to its end and whatever ctx allows. It never
// fails: what goes wrong is in the outcome.
func Agent(ctx context.Context, c Config) AgentOutcome {
	began := time.Now()
	h, err := harness.For(c.Order.Harness.Name)
	if err != nil {
		return c.notStarted(workorder.ByOrder, err)
	}
	text := c.Prompt
	if text == "" {
		text = c.Order.Task
	}
	if len(c.Notes) > 0 && h.Name() != workorder.HarnessCommand {
		text += "\n\n# Notes of the sandbox\n\n- " + strings.Join(c.Notes, "\n- ") + "\n"
	}
	prompt, remove, err := writePrompt(harness.Prompted(h, c.Order, text), c.User)
	if err != nil {
		return c.notStarted(workorder.ByBox, err)
	}
	defer remove()
	n, err := newNotices()
	if err != nil {
		return c.notStarted(workorder.ByBox, err)
	}
	defer n.remove()
	run := harness.Run{
		Order: c.Order, SessionID: newUUID(), PromptFile: prompt, NoticeFile: n.file,
		Workspace: c.Workspace, Home: c.Home, Env: c.env(),
	}
	cmd, err := h.Command(run)
	if err != nil {
		return c.notStarted(workorder.ByOrder, err)
	}
	wire := newWire(c.Meter, c.Order.MaxBudgetUSD)
	if err := c.checkVersion(ctx, h); err != nil {
		return c.notStarted(workorder.ByOrder, err)
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
	a.output = newFlow(a.emit, c.logName(AgentStdout), func(text string) workorder.Event {
		return workorder.Event{Type: workorder.EventAgentOutput, Name: "stdout", Text: text}
	})
	a.events = newFlow(a.emit, c.logName(AgentStdout), func(text string) workorder.Event {
		return workorder.Event{Type: workorder.EventAgentText, Text: text}
	})
	out := a.work(ctx)
	exit := out.Agent.ExitCode
	if exit != nil && *exit == 0 && out.Status != workorder.StatusSuccess {
		exit = nil // an agent may exit with 0 after it was stopped; that is not how it ended
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

// processEnd is how one process of the agent ended.
type processEnd struct {
	startErr error
	cause    error // why it was stopped; nil when it ended by itself
	exit     harness.Exit
	outcome  harness.Outcome
	oom      bool
	hang     *hang
	left     int // processes that could not be killed
}

// work runs the agent, and once more after a hang if it can go on.
func (a *agentRun) work(ctx context.Context) AgentOutcome {
	if err := a.openLogs(); err != nil {
		return a.notStarted(workorder.ByBox, err)
	}
	if a.User != nil {
		a.others = proc.LookAround(a.User.UID, nil)
	}
	var out AgentOutcome
	end := a.process(ctx)
	if ctx.Err() == nil && a.resumes(&end) {
		if again, err := a.again(ctx, &end); err != nil {
			out.Warnings = append(out.Warnings, a.text("the agent could not go on after the hang: "+err.Error()))
		} else {
			end = again
		}
	}
	if err := a.closeLogs(); err != nil {
		out.Warnings = append(out.Warnings, a.text("the agent's logs are incomplete: "+err.Error()))
	}
	if end.startErr != nil {
		failed := a.notStarted(workorder.ByAgent, end.startErr)
		failed.Status = workorder.StatusFailed // the task named a program that is not there: not our failure
		failed.Warnings = out.Warnings
		return failed
	}
	a.conclude(ctx, &out, &end)
	return out
}

// resumes reports whether the agent goes on after this end.
func (a *agentRun) resumes(end *processEnd) bool {
	return end.hang != nil && a.canResume() && !a.wire.spent() && a.wire.long(time.Now()) == nil && end.outcome.Verdict != harness.Limited && end.outcome.Verdict != harness.Budget
}

// canResume is asked during a hang: for the first one, if the harness can and
// there is money left.
func (a *agentRun) canResume() bool {
	_, ok := a.harness.(harness.Resumer)
	b := a.Order.MaxBudgetUSD
	return ok && a.hangs <= 1 && (b == nil || a.money.sofar() < *b)
}

// again runs a second process of the session that hung.
func (a *agentRun) again(ctx context.Context, first *processEnd) (processEnd, error) {
	prompt, remove, err := writePrompt(afterHang(first.hang), a.User)
	if err != nil {
		return processEnd{}, err
	}
	defer remove()
	a.before, a.money.before = first.outcome, first.outcome.Usage
	a.run.PromptFile = prompt
	if b := a.Order.MaxBudgetUSD; b != nil {
		rest := *a.Order // the agent counts the new process alone
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

// process runs one process of the agent.
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
		// The file itself, not a copy of it: an agent that never reads holds nothing up.
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

// conclude fills the outcome from what the parser and the process say.
func (a *agentRun) conclude(ctx context.Context, out *AgentOutcome, end *processEnd) {
	o := end.outcome
	if a.before.Verdict != "" {
		// A process that is stopped may not get to its own account; the session's has it.
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
		cause: end.cause, exit: end.exit, outcome: o, oom: end.oom, hang: end.hang, hangs: a.hangs, halt: a.parser.Halt(),
		limit: a.wire.long(time.Now()), budget: a.Order.MaxBudgetUSD, spent: a.money.sofar(), earlier: a.SpentUSD, refused: a.wire.spent(), route: a.wire.unreachable(),
	})
	if a.longest > 0 {
		why := fmt.Sprintf("the agent printed a line of %d MiB, which is too long to be read: what it said in it, such as its result, is not known", a.longest>>20)
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
	// An agent that asked no model by the gateway, and speaks of none, spent nothing.
	idle := a.Meter != nil && sameTokens(o.Usage, workorder.Usage{})
	if a.Order.MaxBudgetUSD != nil && o.Usage.CostUSD == nil && !idle {
		out.Warnings = append(out.Warnings, "max_budget_usd could not be watched: what the models cost is not known")
	}
	model := o.Model
	if model == "" {
		model = a.Order.Harness.Model
	}
	out.Agent = workorder.Agent{
		Harness: a.harness.Name(), Version: o.Version, Model: a.text(model), ExitCode: &end.exit.Code,
		SessionID: a.text(o.SessionID), Turns: o.Turns, Final: a.text(o.Final),
	}
}

// believed is the time that an agent names for the end of a limit, if it can be one.
func believed(at *time.Time, now time.Time) *time.Time {
	if at == nil || at.Before(now) || at.Sub(now) > workorder.MaxPark {
		return nil
	}
	return at
}
