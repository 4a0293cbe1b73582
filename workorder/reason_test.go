package workorder

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// The host drops codes that are not in the list.
func TestEveryReasonCodeIsListed(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); ok && id.Name == "ReasonCode" {
			lit, _ := v.Values[0].(*ast.BasicLit)
			declared = append(declared, lit.Value)
		}
		return true
	})
	var listed []string
	for _, c := range ReasonCodes() {
		listed = append(listed, `"`+string(c)+`"`)
	}
	slices.Sort(declared)
	slices.Sort(listed)
	if len(declared) == 0 || !slices.Equal(declared, listed) || len(slices.Compact(slices.Clone(listed))) != len(listed) {
		t.Errorf("declared %v, listed %v", declared, listed)
	}
}

func TestReasonsInJSON(t *testing.T) {
	t.Parallel()
	want := Because(ReasonTimeout, "%d minutes", 30).And(ReasonPush, "no route")
	b, err := (&Result{Status: StatusTimeout, Reasons: want}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	var flat struct {
		Reason string     `json:"reason"`
		Code   ReasonCode `json:"reason_code"`
	}
	if err := json.Unmarshal(b, &flat); err != nil || flat.Reason != want.String() || flat.Code != ReasonTimeout {
		t.Errorf("for scripts: %+v, %v", flat, err)
	}
	r, err := DecodeResult(b)
	if err != nil || !slices.Equal(r.Reasons, want) || !r.Reasons.Has(ReasonPush) || r.Status != StatusTimeout {
		t.Errorf("%+v, %v", r, err)
	}
	old, err := DecodeResult([]byte(`{"version":1,"status":"error","reason":"no route","reason_code":"push"}`))
	if err != nil || !slices.Equal(old.Reasons, Reasons{{Code: ReasonPush, Detail: "no route"}}) {
		t.Errorf("of an older version: %+v, %v", old, err)
	}
	if b, _ = (&Result{}).Encode(); !json.Valid(b) {
		t.Errorf("a success: %s", b)
	} else if r, err = DecodeResult(b); err != nil || len(r.Reasons) != 0 {
		t.Errorf("a success has reasons: %+v, %v", r, err)
	}
}

// TestProofReasons: older readers find a sentence, and proofs of older versions have their sentence as a reason without a code.
func TestProofReasons(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(Result{Proof: &Proof{Reasons: Because(ReasonNoTime, "head took 5s").And(ReasonPages, "no page")}})
	if err != nil {
		t.Fatal(err)
	}
	var raw struct{ Proof map[string]any }
	if err := json.Unmarshal(b, &raw); err != nil || raw.Proof["reason"] != "head took 5s; no page" {
		t.Errorf("%v, %v", err, raw.Proof["reason"])
	}
	var same, older Result
	if err := json.Unmarshal(b, &same); err != nil || len(same.Proof.Reasons) != 2 || same.Proof.Reasons[1].Code != ReasonPages {
		t.Errorf("%v, %+v", err, same.Proof)
	}
	if err := json.Unmarshal([]byte(`{"proof":{"base":"b","head":"h","checks":[],"pages":[],"flags":[],"reason":"base was not run"}}`),
		&older); err != nil ||
		older.Proof.Base != "b" || len(older.Proof.Reasons) != 1 || older.Proof.Reasons[0].Detail != "base was not run" {
		t.Errorf("%v, %+v", err, older.Proof)
	}
}

// All reasons of an attempt stay in a task's state and in the results of later attempts; scripts and older versions find them as they
// are said, and an older version's only reason is read.
func TestReasonsOfAttempts(t *testing.T) {
	t.Parallel()
	want := Because(ReasonValidation, "unit failed").And(ReasonPush, "no route")
	state := State{
		TaskID: "T-A1B2C3D4", TargetBranch: "agent/T-A1B2C3D4", Task: "x",
		Attempts: []Attempt{{Number: 1, Status: StatusFailed, Reasons: want}, {Number: 2}},
	}
	b, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}
	s, err := DecodeState(b, state.TaskID)
	if err != nil || !slices.Equal(s.Attempts[0].Ending().Reasons, want) || s.Attempts[0].Status != StatusFailed ||
		len(s.Attempts[1].Reasons) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	var older struct {
		Attempts, Earlier []struct {
			LegacyReason
			Reasons []Reason
		}
	}
	if err := json.Unmarshal(b, &older); err != nil || older.Attempts[0].LegacyReason != (LegacyReason{"unit failed; no route", ReasonValidation}) ||
		older.Attempts[1].Reasons == nil {
		t.Errorf("state as an older version reads it: %+v, %v", older, err)
	}
	if b, err = (&Result{PastAttempts: []PastAttempt{{Number: 1, Reasons: want}, {Number: 2}}}).Encode(); err != nil {
		t.Fatal(err)
	}
	r, err := DecodeResult(b)
	if err != nil || !slices.Equal(r.PastAttempts[0].Reasons, want) || r.PastAttempts[0].Number != 1 || len(r.PastAttempts[1].Reasons) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := json.Unmarshal(b, &older); err != nil || older.Earlier[0].LegacyReason != (LegacyReason{"unit failed; no route", ReasonValidation}) ||
		older.Earlier[1].Reasons == nil {
		t.Errorf("result as a script reads it: %+v, %v", older, err)
	}

	said := Reasons{{Code: ReasonValidation, Detail: "unit failed; no route"}}
	s, err = DecodeState([]byte(`{"version":1,"task_id":"T-A1B2C3D4","target_branch":"agent/T-A1B2C3D4","task":"x","attempts":[
		{"id":"a","number":1,"status":"failed","ended_by":"validation","reason":"unit failed; no route","reason_code":"validation_failed","head_sha":"h"},
		{"id":"b","number":2,"status":"","ended_by":"","reason":""}]}`), "T-A1B2C3D4")
	if err != nil || !slices.Equal(s.Attempts[0].Reasons, said) || s.Attempts[0].HeadSHA != "h" ||
		s.Attempts[0].EndedBy != EndedByValidation || s.Attempts[1].Reasons != nil {
		t.Errorf("state of an older version: %+v, %v", s, err)
	}
	r, err = DecodeResult([]byte(`{"version":1,"earlier":[{"number":1,"mode":"create","status":"failed","reason":"unit failed; no ` +
		`route","reason_code":"validation_failed","cost_usd":2}]}`))
	if err != nil || !slices.Equal(r.PastAttempts[0].Reasons, said) || r.PastAttempts[0].Mode != ModeCreate || *r.PastAttempts[0].CostUSD != 2 {
		t.Errorf("result of an older version: %+v, %v", r, err)
	}
}

func TestEachReason(t *testing.T) {
	t.Parallel()
	r := Because(ReasonPush, "key").And("", "no key")
	if got := r.Each(strings.ToUpper); got.String() != "KEY; NO KEY" || got.Code() != ReasonPush || r.String() != "key; no key" {
		t.Errorf("%v of %v", got, r)
	}
}
