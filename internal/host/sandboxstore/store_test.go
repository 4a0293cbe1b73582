package sandboxstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	s := sandboxstore.New(state)
	if _, err := s.Load("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if names, err := s.Names(); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	elsewhere := filepath.Join(t.TempDir(), "record.json")
	if err := errors.Join(os.WriteFile(elsewhere, []byte("{}"), 0o600), os.MkdirAll(s.Dir("link"), 0o700),
		os.Symlink(elsewhere, filepath.Join(s.Dir("link"), "record.json"))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load("link"); err == nil {
		t.Error("a link was followed")
	}
	if err := os.RemoveAll(s.Dir("link")); err != nil {
		t.Fatal(err)
	}
	unlock, err := s.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two hold the lock: %v", err)
	}
	if other, err := s.Lock(t.Context(), "b"); err != nil { // another sandbox is not kept waiting
		t.Error(err)
	} else {
		other()
	}
	want := sandboxstore.Record{Runtime: "container", Engine: "e", Spec: json.RawMessage(`{"name":"a"}`)}
	if err := s.Save("a", want); err != nil {
		t.Fatal(err)
	}
	unlock()
	if got, err := s.Load("a"); err != nil || got.Engine != "e" || string(got.Spec) != string(want.Spec) {
		t.Errorf("%+v, %v", got, err)
	}
	if names, err := s.Names(); err != nil || strings.Join(names, " ") != "a" {
		t.Errorf("%v, %v", names, err)
	}
	if unlock, err = s.Lock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("a"); err != nil {
		t.Error(err)
	}
	unlock()
	if _, err := os.Stat(s.Dir("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
	if err := os.MkdirAll(s.Dir("d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir("d"), "record.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load("d"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged record: %v", err)
	}
}

// The history has all that was done, by whoever, and is bounded.
func TestHistory(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	s := sandboxstore.New(state)
	if all, err := s.HistoryOfAll(); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	var wg sync.WaitGroup
	const each, many = 500, 4
	for _, name := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for range each {
				code := 3
				if err := s.AppendEvent(sandboxstore.Event{Sandbox: name, Event: sandboxstore.EventExecuted, Program: strings.Repeat("p", 1000), Code: &code}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if all, err := s.HistoryOfAll(); err != nil || len(all) != each*many {
		t.Errorf("%d, %v", len(all), err)
	}
	mine, err := s.History("b")
	if err != nil || len(mine) != each || mine[0].Sandbox != "b" || *mine[0].Code != 3 || len(mine[0].Program) > 300 {
		t.Errorf("%d, %v", len(mine), err)
	}
	// What a crash has left of a line is passed over.
	audit := filepath.Join(state, sandboxstore.Dir, "audit.jsonl")
	f, err := os.OpenFile(audit, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{\"at\":\nnot json\n" + `{"sandbox":"old","event":"renewed"}` + "\n" + `{"sandbox":"old","event":"network"}` + "\n"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if mine, err := s.History("b"); err != nil || len(mine) != each {
		t.Errorf("%d, %v", len(mine), err)
	}
	if old, err := s.History("old"); err != nil || len(old) != 2 || old[0].Event != sandboxstore.EventRecreated ||
		old[1].Event != sandboxstore.EventNetworkChanged {
		t.Errorf("events of an older version: %+v, %v", old, err)
	}
	// What a user has named at length keeps nobody from reading the rest.
	if err := s.AppendEvent(sandboxstore.Event{Sandbox: "b", Event: sandboxstore.EventRestored, Detail: strings.Repeat("x", 100_000)}); err != nil {
		t.Fatal(err)
	}
	if mine, err := s.History("b"); err != nil || len(mine) != each+1 {
		t.Errorf("%d, %v", len(mine), err)
	}
	for range 40_000 {
		if err := s.AppendEvent(sandboxstore.Event{Sandbox: "e", Event: sandboxstore.EventExecuted, Program: strings.Repeat("p", 100)}); err != nil {
			t.Fatal(err)
		}
	}
	size := int64(0)
	for _, file := range []string{audit, audit + ".1"} {
		st, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		size += st.Size()
	}
	if all, err := s.History("e"); err != nil || size > 5<<20 || len(all) < 5000 {
		t.Errorf("%d bytes, %d events, %v", size, len(all), err)
	}
}

// Calls are added once, in the order in which they were made, without one that is being written.
func TestCalls(t *testing.T) {
	t.Parallel()
	s := sandboxstore.New(t.TempDir())
	for _, lines := range []string{"", "{1}\n{2", "{1}\n{2}\n", "{3}\n"} {
		if err := s.AddCalls(t.Context(), "a", []byte(lines)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Calls("a"); err != nil || string(got) != "{1}\n{2}\n{3}\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := s.Calls("b"); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
	if names, err := s.Names(); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}
