package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/runner/harness"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Logs of the agent, relative to Config.OutDir.
const (
	AgentStdout     = workorder.LogsDir + "/agent.stdout.log"
	AgentStderr     = workorder.LogsDir + "/agent.stderr.log"
	AgentTranscript = workorder.LogsDir + "/agent.transcript.jsonl"
)

// Why we ourselves stop an agent.
var (
	errBudget = errors.New("max_budget_usd was reached")
	errHalt   = errors.New("going on is pointless")
)

// tailSize is how much of the end of an output explains a failure, in bytes.
const tailSize = 4 << 10

// AgentOutcome is how the agent ended.
type AgentOutcome struct {
	// Ending is StatusSuccess when the agent did its part; it says nothing about
	// changes or validation yet.
	Ending
	Agent    workorder.Agent
	Usage    workorder.Usage
	Denials  int
	Warnings []string
}

// agentRun is one agent from start to end.
type agentRun struct {
	Config
	stop    context.CancelCauseFunc
	harness harness.Harness
	run     harness.Run
	cmd     harness.Command

	// The standard output's goroutine alone uses these until the process is done.
	parser harness.Parser
	spent  float64

	output *flow // lines that are no events
	events *flow // what the agent says and does
	stderr *proc.Tail
}

// Agent runs the order's agent to its end and whatever ctx allows. It never
// fails: what goes wrong is in the outcome.
func Agent(ctx context.Context, c Config) AgentOutcome {
	began := time.Now()
	h, err := harness.For(c.Order.Harness.Name)
	if err != nil {
		return c.notStarted(workorder.ByOrder, err)
	}
	prompt, remove, err := writePrompt(c.Order.Task, c.User)
	if err != nil {
		return c.notStarted(workorder.ByBox, err)
	}
	defer remove()
	run := harness.Run{
		Order: c.Order, SessionID: newUUID(), PromptFile: prompt,
		Workspace: c.Workspace, Home: c.Home, Env: c.env(),
	}
	cmd, err := h.Command(run)
	if err != nil {
		return c.notStarted(workorder.ByOrder, err)
	}
	if err := c.checkVersion(ctx, h); err != nil {
		return c.notStarted(workorder.ByOrder, err)
	}
	c.emit(workorder.Event{Type: workorder.EventAgentStarted, Name: h.Name(), Text: c.Order.Harness.Version})

	actx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a := &agentRun{
		Config: c, stop: stop, harness: h, run: run, cmd: cmd,
		parser: h.Parser(run), stderr: proc.NewTail(tailSize),
	}
	a.output = newFlow(a.emit, AgentStdout, func(text string) workorder.Event {
		return workorder.Event{Type: workorder.EventAgentOutput, Name: "stdout", Text: text}
	})
	a.events = newFlow(a.emit, AgentStdout, func(text string) workorder.Event {
		return workorder.Event{Type: workorder.EventAgentText, Text: text}
	})
	out := a.wait(actx)
	exit := out.Agent.ExitCode
	if exit != nil && *exit == 0 && out.Status != workorder.StatusSuccess {
		exit = nil // an agent may exit with 0 after it was stopped; that is not how it ended
	}
	c.emit(workorder.Event{
		Type: workorder.EventAgentFinished, Name: h.Name(), Status: string(out.Status), ExitCode: exit,
		DurationMS: time.Since(began).Milliseconds(), Text: out.Reason,
	})
	return out
}

func (c *Config) notStarted(by workorder.EndedBy, err error) AgentOutcome {
	return AgentOutcome{
		Ending: Ending{Status: workorder.StatusError, EndedBy: by, Reason: c.text(err.Error())},
		Agent:  workorder.Agent{Harness: c.Order.Harness.Name, Model: c.Order.Harness.Model},
	}
}

func (a *agentRun) wait(ctx context.Context) AgentOutcome {
	stdin, err := os.Open(a.run.PromptFile)
	if err != nil {
		return a.notStarted(workorder.ByBox, fmt.Errorf("open prompt: %w", err))
	}
	defer func() { _ = stdin.Close() }()
	outLog, err := a.logFile(AgentStdout)
	if err != nil {
		return a.notStarted(workorder.ByBox, err)
	}
	errLog, err := a.logFile(AgentStderr)
	if err != nil {
		return a.notStarted(workorder.ByBox, errors.Join(err, outLog.Close()))
	}
	outClean, errClean := a.Redact.Writer(outLog), a.Redact.Writer(io.MultiWriter(errLog, a.stderr))
	outLines, errLines := proc.NewLines(a.stdoutLine), proc.NewLines(a.stderrLine)

	var others *bystanders
	if a.User != nil {
		others = lookAround(a.User.UID)
	}
	oomBefore := oomKills(a.limits().oomFiles)
	p, startErr := proc.Start(ctx, proc.Spec{
		Argv: a.cmd.Argv, Dir: a.Workspace, Env: a.env(a.cmd.Env...), User: a.User,
		// The file itself, not a copy of it: an agent that never reads holds nothing up.
		Stdin:  stdin,
		Stdout: io.MultiWriter(outClean, outLines), Stderr: io.MultiWriter(errClean, errLines),
		StopSignal: a.cmd.Stop[0], Grace: workorder.AgentGrace, OOMScoreAdj: oomScore,
	})
	var waitErr, cause error
	var left int
	if startErr == nil {
		left, cause, waitErr = a.watch(ctx, p, others)
	}
	outLines.Close()
	errLines.Close()
	a.output.close()
	a.events.close()
	out := AgentOutcome{}
	if err := errors.Join(outClean.Close(), errClean.Close(), outLog.Close(), errLog.Close()); err != nil {
		out.Warnings = append(out.Warnings, a.text("the agent's logs are incomplete: "+err.Error()))
	}
	if startErr != nil {
		failed := a.notStarted(workorder.ByAgent, startErr)
		failed.Status = workorder.StatusFailed // the task named a program that is not there: not our failure
		failed.Warnings = out.Warnings
		return failed
	}
	if left > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d processes of the agent could not be killed", left))
	}
	oom := oomKills(a.limits().oomFiles) > oomBefore
	a.conclude(&out, waitErr, cause, oom)
	return out
}

// watch waits for the process, sees to the later signals of the stop sequence,
// and removes what the agent leaves.
func (a *agentRun) watch(ctx context.Context, p *proc.Process, others *bystanders) (left int, cause, waitErr error) {
	var signals sync.WaitGroup
	signals.Go(func() { a.escalate(ctx, p) })
	waitErr = p.Wait()
	// Asked at once: what ends the context from here on did not end the agent.
	cause = stopped(ctx)
	signals.Wait()
	p.Signal(syscall.SIGKILL) // the rest of its group
	if others != nil {
		left = others.sweep()
	}
	return left, cause, waitErr
}

// escalate sends the second and later stop signals, evenly over the grace.
func (a *agentRun) escalate(ctx context.Context, p *proc.Process) {
	select {
	case <-p.Done():
		return
	case <-ctx.Done():
	}
	step := workorder.AgentGrace / time.Duration(len(a.cmd.Stop))
	for _, sig := range a.cmd.Stop[1:] {
		t := time.NewTimer(step)
		select {
		case <-p.Done():
			t.Stop()
			return
		case <-t.C:
			p.Signal(sig)
		}
	}
}

// conclude fills the outcome from what the parser and the process say.
func (a *agentRun) conclude(out *AgentOutcome, waitErr, cause error, oom bool) {
	exit := harness.Exit{Code: proc.ExitCode(waitErr), Stderr: a.stderr.String()}
	if ee, ok := errors.AsType[*proc.ExitError](waitErr); ok && ee.Signal != 0 {
		exit.Signal = unix.SignalName(ee.Signal)
	}
	o := a.parser.End(exit)
	if rec, ok := a.harness.(harness.Recorder); ok {
		cost, err := a.keepTranscript(rec)
		if err != nil {
			o.Warnings = append(o.Warnings, "the agent's transcript was not kept: "+err.Error())
		}
		if o.Usage.CostUSD == nil && cost != nil {
			o.Usage.CostUSD, o.Usage.CostSource = cost, "harness"
		}
	}
	out.Ending = agentEnding(agentFacts{cause: cause, exit: exit, outcome: o, oom: oom, budget: a.Order.MaxBudgetUSD, spent: a.spent, halt: a.parser.Halt()})
	out.Reason = a.text(out.Reason)
	out.Usage, out.Denials = o.Usage, o.Denials
	for _, w := range o.Warnings {
		out.Warnings = append(out.Warnings, a.text(w))
	}
	if a.Order.MaxBudgetUSD != nil && o.Usage.CostUSD == nil {
		out.Warnings = append(out.Warnings, "max_budget_usd could not be watched: the agent reported no cost")
	}
	model := o.Model
	if model == "" {
		model = a.Order.Harness.Model
	}
	out.Agent = workorder.Agent{
		Harness: a.harness.Name(), Version: o.Version, Model: a.text(model), ExitCode: &exit.Code,
		SessionID: a.text(o.SessionID), Turns: o.Turns, Final: a.text(o.Final),
	}
}

func (a *agentRun) stdoutLine(line []byte, lost int64) {
	events, understood := a.parser.Line(line)
	if !understood {
		a.plainLine("stdout", line, lost)
		return
	}
	for _, e := range events {
		if e.Usage != nil {
			a.account(e.Usage)
		}
		if a.events.allow(len(e.Text)) {
			a.emit(e)
		}
	}
	if a.parser.Halt() != "" {
		a.stop(errHalt)
	}
}

func (a *agentRun) stderrLine(line []byte, lost int64) { a.plainLine("stderr", line, lost) }

// plainLine is the way of a flood: nothing is allocated for a line that is dropped.
func (a *agentRun) plainLine(stream string, line []byte, lost int64) {
	if len(line) == 0 || !a.output.allow(len(line)) {
		return
	}
	text := string(line[:min(len(line), redactWindow)])
	if lost > 0 {
		text = fmt.Sprintf("[line of %d bytes] %s", int64(len(line))+lost, text)
	}
	a.emit(workorder.Event{Type: workorder.EventAgentOutput, Name: stream, Text: text})
}

// account watches the budget while the agent works.
func (a *agentRun) account(u *workorder.Usage) {
	if u.CostUSD == nil {
		return
	}
	a.spent = max(a.spent, *u.CostUSD)
	if b := a.Order.MaxBudgetUSD; b != nil && a.spent > *b {
		a.stop(errBudget)
	}
}
