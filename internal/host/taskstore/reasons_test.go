package taskstore

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A record keeps all reasons of every attempt, and says them as older versions read them.
func TestReasons(t *testing.T) {
	t.Parallel()
	s, first := finished(t)
	first.Reasons = workorder.Because(workorder.ReasonTimeout, "30 minutes").And(workorder.ReasonPush, "no route")
	want := first.Reasons
	next := &Record{TaskID: task, AttemptID: "00000000000000a2", Reasons: workorder.Because(workorder.ReasonAgent, "x").And("", "y")}
	if err := s.NextAttempt(first, next); err != nil {
		t.Fatal(err)
	}
	r, err := s.Load(task)
	if err != nil || !slices.Equal(r.Reasons, next.Reasons) || !slices.Equal(r.PastAttempts[0].Reasons, want) {
		t.Fatalf("%+v, %v", r, err)
	}
	if was, err := r.At(1); err != nil || !slices.Equal(was.Reasons, want) {
		t.Errorf("the first attempt: %+v, %v", was, err)
	}
	var older struct {
		workorder.LegacyReason
		Former []workorder.LegacyReason
	}
	b, err := os.ReadFile(filepath.Join(s.TaskDir(task), recordFile))
	if err == nil {
		err = json.Unmarshal(b, &older)
	}
	if err != nil || older.LegacyReason != (workorder.LegacyReason{Reason: "x; y", ReasonCode: workorder.ReasonAgent}) ||
		len(older.Former) != 1 || older.Former[0] != (workorder.LegacyReason{Reason: "30 minutes; no route", ReasonCode: workorder.ReasonTimeout}) {
		t.Errorf("as an older version reads it: %+v, %v", older, err)
	}
}

// The record of an older version is read whole; it has one reason for each attempt.
func TestReasonsOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	if err := os.MkdirAll(s.TaskDir(task), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.TaskDir(task), recordFile), []byte(`{"task_id":"`+task+`","attempt":3,"collected":true,"status":"error","reason":"x; y","reason_code":"push",
		"former":[{"number":1,"status":"timeout","reason":"30 minutes","reason_code":"timeout","box":"b"},{"number":2,"status":"success","ended_by":"agent"}],"dir":"d"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := s.Load(task)
	if err != nil || !slices.Equal(r.Reasons, workorder.Because(workorder.ReasonPush, "x; y")) || r.Status != workorder.StatusError || r.Dir != "d" || len(r.PastAttempts) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if a := r.PastAttempts[0]; !slices.Equal(a.Reasons, workorder.Because(workorder.ReasonTimeout, "30 minutes")) || a.Box != "b" {
		t.Errorf("%+v", a)
	}
	if a := r.PastAttempts[1]; a.Reasons != nil || a.EndedBy != workorder.EndedByAgent {
		t.Errorf("%+v", a)
	}
}
