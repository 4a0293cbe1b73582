package render_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const sha = "0123456789abcdef0123456789abcdef01234567"

// saving is a record of a continued run that saves as it goes.
func saving() []workorder.Event {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	list := []workorder.Event{
		{Type: workorder.EventLease, Status: "waiting", Text: "another box"},
		{Type: workorder.EventLease, Status: "acquired", Text: "attempt 2"},
		{Type: workorder.EventRestored, Status: "ok", Text: sha},
		{Type: workorder.EventAgentStarted, Name: "command"},
		{Type: workorder.EventCheckpoint, Status: "ok", Text: sha, DurationMS: 120},
		{Type: workorder.EventCheckpoint, Status: "ok", Text: sha},
		{Type: workorder.EventCheckpoint, Status: "error", Text: "connection refused"},
		{Type: workorder.EventCheckpoint, Status: "ok", Text: sha},
		{Type: workorder.EventNotice, Status: "ok", Text: "80 % of the time is over"},
		{Type: workorder.EventNotice, Status: "error", Text: "no way"},
		{Type: workorder.EventHang, Status: "resumed", Text: "no sign of life", Path: "evidence/hang"},
		{Type: workorder.EventLease, Status: "lost", Text: "taken"},
	}
	for i := range list {
		list[i].Seq, list[i].Time = int64(i+1), at.Add(time.Duration(i)*time.Second)
	}
	return list
}

func TestSavingPlain(t *testing.T) {
	var b bytes.Buffer
	r := render.New(render.Plain, &b, render.Options{Verbose: true})
	for _, e := range saving() {
		r.Event(e)
	}
	const want = `[     0.0s] lease: waiting another box
[     1.0s] lease: acquired attempt 2
[     2.0s] restored 0123456789
[     3.0s] agent: started command
[     4.0s] checkpoint: saved 0123456789 (120ms)
[     6.0s] checkpoint: error connection refused
[     7.0s] checkpoint: saved 0123456789
[     8.0s] sent to the agent: 80 % of the time is over
[     9.0s] not sent to the agent: no way
[    10.0s] hang: resumed no sign of life evidence/hang
[    11.0s] lease: lost taken
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

func TestSavingTTY(t *testing.T) {
	term, c := newTerminal(80), &clock{}
	r := render.New(render.TTY, term, render.Options{Now: c.now, Tick: make(chan time.Time), Width: func() int { return 80 }})
	for _, e := range saving() {
		c.t = e.Time.Add(500 * time.Millisecond)
		r.Event(e)
		if e.Type == workorder.EventCheckpoint && e.Status == "error" && !strings.Contains(term.String(), "saved 1 s ago") {
			t.Errorf("how long ago it was saved is not there:\n%s", term)
		}
	}
	got := term.String()
	r.Close()
	for text, there := range map[string]bool{
		"lease: waiting another box": true, "lease: acquired": false, "restored 0123456789": true, "checkpoint: error connection refused": true,
		"checkpoint: saved": false, "saved 4 s ago": true, "sent to the agent: 80 %": true, "hang: resumed": true, "lease: lost": true,
	} {
		if strings.Contains(got, text) != there {
			t.Errorf("%q there: %v, want %v:\n%s", text, !there, there, got)
		}
	}
}

func TestSummaryOfAttempts(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local)
	at := now.Add(2 * time.Hour)
	res := &workorder.Result{
		TaskID: "T-A1B2C3D4", Status: workorder.StatusParked, EndedBy: workorder.EndedByLimit, Attempt: 3, ResumeAt: &at,
		Checkpoint:  &workorder.Checkpoint{SHA: sha, At: now.Add(-24 * time.Hour)},
		Restored:    &workorder.Restored{Head: sha, Checkpoint: sha, Kept: "refs/sandbox-agent/T-A1B2C3D4/kept"},
		NextCommand: "sandbox-agent continue T-A1B2C3D4 --wait",
	}
	var b bytes.Buffer
	render.Summary(&b, res, render.SummaryOptions{
		Now:    func() time.Time { return now },
		Number: 3, Former: []render.Attempt{{1, workorder.StatusLost, workorder.EndedByHost}, {2, workorder.StatusTimeout, workorder.EndedByTimeout}},
	})
	for _, want := range []string{
		"resumes    at 05:00, when", "attempts   1 lost (host) · 2 timeout (timeout) · 3 this one",
		"restored   branch at 0123456789 with checkpoint 0123456789 (not verified)", "is kept as refs/sandbox-agent/T-A1B2C3D4/kept",
		"checkpoint 0123456789 of Thu 2026-01-01 03:00", "next       sandbox-agent continue",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}
