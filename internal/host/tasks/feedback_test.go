package tasks

import (
	"slices"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestSplitFeedback(t *testing.T) {
	t.Parallel()
	// The first text of each is the introduction.
	for text, want := range map[string][]string{
		"":                             {""},
		"Just words.\n\nMore of them.": {"", "Just words.\n\nMore of them."},
		"1. a\n2) b\n   - of b\n\n   still b\n10. c":         {"", "1. a", "2) b\n   - of b\n\n   still b", "10. c"},
		"Please:\r\n\r\n* a\r\n+ b\r\n":                      {"Please:", "* a", "+ b"},
		"# Review\n\nPlease:\n- a\n":                         {"# Review\n\nPlease:", "- a"},
		"- a\n```\n- code\n``\n- more\n```\n- b\n---\n* * *": {"", "- a\n```\n- code\n``\n- more\n```", "- b\n---\n* * *"},
		"-x\n-\n1.5 is it\n- ":                               {"", "-x\n-\n1.5 is it\n-"},
		"\ufeff- a\n- b":                                     {"", "- a", "- b"},
		"# api\n- x\n# docs\n- y\n  - z\n":                   {"", "# api\n- x", "# docs\n- y\n  - z"},
		"# Review\n\nPlease.\n\n## api\n\n- x\n## docs\n- y": {"# Review\n\nPlease.", "## api\n- x", "## docs\n- y"},
		"# Review\nPlease.\n- x\n## docs\n- y":               {"# Review\nPlease.", "- x", "## docs\n- y"},
		"# One\n\nWords.\n\n# Two\n\nMore words.":            {"", "# One\n\nWords.\n\n# Two\n\nMore words."},
		"- a\n\n  # of a\n\n#5 is no heading\n- b":           {"", "- a\n\n  # of a\n\n#5 is no heading", "- b"},
		" - a\n - b\n   - of b\n":                            {"", "- a", "- b\n   - of b"},
		"   1. a\n- b":                                       {"", "1. a", "- b"},
		"1. a\r2. b\r":                                       {"", "1. a", "2. b"},
	} {
		if intro, got := splitFeedback(text); !slices.Equal(append([]string{intro}, got...), want) {
			t.Errorf("%q: %q, %q", text, intro, got)
		}
	}
}

func person(login string, write bool) forge.Person {
	return forge.Person{Login: login, CanWrite: write}
}

func TestReviewOf(t *testing.T) {
	t.Parallel()
	at := func(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC) }
	note := func(n int, login string, write, ours bool) forge.Note {
		return forge.Note{Author: person(login, write), Body: "text", At: at(n), Ours: ours}
	}
	pr := &forge.PR{Number: 7}
	thread := func(id string, answered bool, notes ...forge.Note) forge.Item {
		return forge.Item{Source: forge.FromThread, Thread: id, Note: notes[0], Replies: notes[1:], Answered: answered}
	}
	f := &forge.Feedback{Items: []forge.Item{
		thread("answered", true, note(1, "ann", true, false), note(2, "runner", true, true)),
		thread("asked again", false, note(3, "ann", true, false), note(4, "runner", true, true), note(5, "ann", true, false)),
		thread("others' words", false, note(3, "ann", true, false), note(4, "runner", true, true), note(9, "eve", false, false)),
		{Source: forge.FromComment, Note: forge.Note{Author: person("ann", true), Body: "edited", At: at(6), Changed: at(8)}},
	}}
	r, warnings := reviewOf(pr, f, nil)
	if len(warnings) != 0 || len(r.Items) != 3 || !r.Items[0].Command || r.Items[1].Command || !r.Until.Equal(at(8)) {
		t.Errorf("%+v, %q", r, warnings)
	}
	if n := r.Items[0].Notes[1]; n.Author != "sandbox-agent" || n.Trusted {
		t.Errorf("our own words: %+v", n)
	}
	// An attempt that was not done with a thread leaves it open.
	pending := &workorder.Review{Items: []workorder.ReviewItem{{Thread: "answered"}}}
	if r, _ := reviewOf(pr, f, pending); len(r.Items) != 4 || !r.Items[0].Command {
		t.Errorf("%+v", r.Items)
	}
	// One that was done could only not say so, and somebody has.
	state := &workorder.State{Review: pending, Attempts: []workorder.Attempt{{Status: workorder.StatusSuccess}}}
	if r, _ := reviewOf(pr, f, unfinished(state)); len(r.Items) != 3 {
		t.Errorf("%+v", r.Items)
	}
	state.Attempts[0].Status = workorder.StatusFailed
	if r, _ := reviewOf(pr, f, unfinished(state)); len(r.Items) != 4 {
		t.Errorf("%+v", r.Items)
	}
	// Somebody's reply does not take the command of an open thread away.
	said := &forge.Feedback{Items: []forge.Item{thread("t", false, note(1, "ann", true, false), note(2, "runner", true, true), note(3, "eve", false, false))}}
	if r, _ := reviewOf(pr, said, &workorder.Review{Items: []workorder.ReviewItem{{Thread: "t"}}}); len(r.Items) != 1 || !r.Items[0].Command {
		t.Errorf("%+v", r.Items)
	}
	// Readers do not take the room of those who may command.
	flood := &forge.Feedback{}
	for i := range workorder.MaxReviewItems + 5 {
		flood.Items = append(flood.Items, forge.Item{Source: forge.FromComment, Note: note(i, "eve", false, false)})
	}
	flood.Items = append(flood.Items, forge.Item{Source: forge.FromComment, Note: note(200, "ann", true, false)})
	if r, warnings := reviewOf(pr, flood, nil); len(r.Items) != maxQuoted+1 || !r.Items[maxQuoted].Command || len(warnings) != 1 || !r.Until.Equal(at(200)) {
		t.Errorf("%d items, until %s, %q", len(r.Items), r.Until, warnings)
	}
	f.More, f.MoreCommands = true, true
	if r, warnings := reviewOf(pr, f, nil); !r.Until.IsZero() || len(warnings) != 1 {
		t.Errorf("until %s, %q", r.Until, warnings)
	}
	many := &forge.Feedback{}
	for i := range workorder.MaxReviewItems + 5 {
		many.Items = append(many.Items, forge.Item{Source: forge.FromComment, Note: note(i, "ann", true, false)})
	}
	if r, warnings := reviewOf(pr, many, nil); len(r.Items) != workorder.MaxReviewItems || !r.Until.Equal(at(workorder.MaxReviewItems-1)) || len(warnings) != 1 {
		t.Errorf("%d items, until %s, %q", len(r.Items), r.Until, warnings)
	}
}
