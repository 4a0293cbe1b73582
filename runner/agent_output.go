package runner

import (
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (a *agentRun) stdoutLine(line []byte, lost int64) {
	a.heard.Add(1)
	if lost > 0 {
		a.longest = max(a.longest, int64(len(line))+lost)
	}
	events, understood := a.parser.Line(line)
	if !understood {
		a.plainLine("stdout", line, lost)
		return
	}
	for _, e := range events {
		if e.Usage != nil {
			if e.Usage.CostUSD != nil {
				a.money.account(*e.Usage.CostUSD)
			}
			all := a.wire.sofar(a.money.inAll(*e.Usage))
			e.Usage = &all
			a.money.reported(all)
		}
		if a.events.allow(len(e.Text)) {
			a.emit(e)
		}
	}
	if a.parser.StopReason() != "" {
		a.stop(errHalt)
	}
}

func (a *agentRun) stderrLine(line []byte, lost int64) {
	a.heard.Add(1)
	a.plainLine("stderr", line, lost)
}

// plainLine is the hot path of a flood of output: dropped lines must not allocate.
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
