package boot

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Targets of the pull request's links are on the remote before it is opened, and only where there is one.
func TestEvidence(t *testing.T) {
	t.Parallel()
	checks := func() []workorder.Validation {
		return []workorder.Validation{{Name: "test", Passed: true, Log: "logs/test.log"}}
	}
	const call = "evidence [logs/test.log]"
	f, forge := &fake{validate: checks}, &fakeForge{}
	r := playBox(t, f, order(), func(b *Runner) { b.Forge = forge })
	if !f.called(call) || r.result.EvidenceSHA != "e1" || forge.seen.EvidenceSHA != "e1" || !r.result.EvidenceKept("logs/test.log") ||
		r.result.EvidenceKept("left") {
		t.Errorf("calls %q, %+v", f.calls, r.result)
	}
	f = &fake{validate: checks}
	if play(t, f, order(), nil); f.called(call) {
		t.Error("there is no pull request, and the remote has files of it")
	}
	f, forge = &fake{validate: checks, evidenceErr: errors.New("the remote is away")}, &fakeForge{}
	r = playBox(t, f, order(), func(b *Runner) { b.Forge = forge })
	if r.result.Status != workorder.StatusSuccess || forge.seen == nil ||
		!strings.Contains(strings.Join(r.result.Warnings, " "), "the remote is away") {
		t.Errorf("%s, %q", r.result.Status, r.result.Warnings)
	}
}
