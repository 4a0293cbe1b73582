package boot

import (
	"context"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type fakeProver struct {
	base, head string
	endless    []workorder.LeftOut
	proof      *workorder.Proof // nil means one of which setup failed
}

func (f *fakeProver) Endless(string) []workorder.LeftOut { return f.endless }

func (f *fakeProver) RecordBaseline(context.Context) error { return nil }

func (f *fakeProver) Prove(_ context.Context, base, head string) (*workorder.Proof, []workorder.Evidence, error) {
	f.base, f.head = base, head
	if f.proof != nil {
		f.proof.Head = head
		return f.proof, nil, nil
	}
	proof := &workorder.Proof{Base: base, Head: head, Reasons: workorder.Because(workorder.ReasonSetup, "setup failed on base")}
	return proof, []workorder.Evidence{{Path: "evidence/pages/a.png"}}, nil
}

func (f *fakeProver) Checks(context.Context, string, string) (*workorder.Proof, error) {
	return nil, nil
}

// playBox plays a run of a box that has something more.
func playBox(t *testing.T, f *fake, o *workorder.Order, change func(*Runner)) run {
	t.Helper()
	return playWith(t, f, o, nil, change)
}

// The result has the proof, and why it lacks parts; a run without checks or commits has nothing to prove.
func TestProve(t *testing.T) {
	t.Parallel()
	o := order()
	o.Validate = []workorder.Check{{Name: "test", Run: "true"}}
	p := &fakeProver{}
	r := playBox(t, &fake{}, o, func(b *Runner) { b.Prover = p })
	if r.code != workorder.ExitOK || p.head != "h1" || r.result.Proof == nil || len(r.result.Warnings) != 0 ||
		r.result.Proof.Reasons.Code() != workorder.ReasonSetup ||
		r.steps()["proof"] != workorder.StepDone {
		t.Errorf("code %d, asked for %+v, %+v, %q", r.code, p, r.result.Proof, r.result.Warnings)
	}
	bare := order()
	bare.Validate = nil
	if r := playBox(
		t,
		&fake{},
		bare,
		func(b *Runner) { b.Prover = &fakeProver{} },
	); r.result.Proof != nil ||
		r.steps()["proof"] != workorder.StepSkipped {
		t.Errorf("proved %+v", r.result.Proof)
	}
	// With a development server there are pictures to take.
	bare.Dev = &workorder.Dev{Command: "true", Port: 3000}
	if r := playBox(
		t,
		&fake{},
		bare,
		func(b *Runner) { b.Prover = &fakeProver{} },
	); r.result.Proof == nil || len(r.result.Evidence) != 1 ||
		r.steps()["proof"] != workorder.StepDone {
		t.Errorf("proved %+v, %+v", r.result.Proof, r.result.Evidence)
	}
	none := &fake{land: func(context.Context) land.Result { return land.Result{Head: "h0"} }}
	if r := playBox(
		t,
		none,
		o,
		func(b *Runner) { b.Prover = &fakeProver{} },
	); r.result.Proof != nil ||
		r.steps()["proof"] != workorder.StepSkipped {
		t.Errorf("proved %+v", r.result.Proof)
	}
}
