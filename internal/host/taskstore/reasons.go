package taskstore

import (
	"encoding/json"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Older versions read and wrote the reasons only as one sentence.

// MarshalJSON writes the reasons as a list and as a sentence.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record // without this method
	return json.Marshal(struct {
		plain
		workorder.LegacyReason
	}{plain(r), r.Reasons.Legacy()})
}

// UnmarshalJSON reads what MarshalJSON writes, and records of older versions.
func (r *Record) UnmarshalJSON(b []byte) error {
	type plain Record // without this method
	both := struct {
		*plain
		workorder.LegacyReason
	}{plain: (*plain)(r)}
	err := json.Unmarshal(b, &both)
	r.Reasons = both.Listed(r.Reasons)
	return err
}

// MarshalJSON is Record.MarshalJSON for an attempt.
func (a Attempt) MarshalJSON() ([]byte, error) {
	type plain Attempt // without this method
	return json.Marshal(struct {
		plain
		workorder.LegacyReason
	}{plain(a), a.Reasons.Legacy()})
}

// UnmarshalJSON is Record.UnmarshalJSON for an attempt.
func (a *Attempt) UnmarshalJSON(b []byte) error {
	type plain Attempt // without this method
	both := struct {
		*plain
		workorder.LegacyReason
	}{plain: (*plain)(a)}
	err := json.Unmarshal(b, &both)
	a.Reasons = both.Listed(a.Reasons)
	return err
}
