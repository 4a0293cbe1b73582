package registry_test

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

	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	r := registry.New(state)
	if _, err := r.Load("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if names, err := r.Names(); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	unlock, err := r.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := r.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two hold the lock: %v", err)
	}
	if other, err := r.Lock(t.Context(), "b"); err != nil { // another sandbox is not kept waiting
		t.Error(err)
	} else {
		other()
	}
	want := registry.Record{Runtime: "container", Engine: "e", Spec: json.RawMessage(`{"name":"a"}`)}
	if err := r.Keep("a", want); err != nil {
		t.Fatal(err)
	}
	unlock()
	if got, err := r.Load("a"); err != nil || got.Engine != "e" || string(got.Spec) != string(want.Spec) {
		t.Errorf("%+v, %v", got, err)
	}
	if names, err := r.Names(); err != nil || strings.Join(names, " ") != "a" {
		t.Errorf("%v, %v", names, err)
	}
	if unlock, err = r.Lock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := r.Forget("a"); err != nil {
		t.Error(err)
	}
	unlock()
	if _, err := os.Stat(r.Dir("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
	if err := os.MkdirAll(r.Dir("d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Dir("d"), "record.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Load("d"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged record: %v", err)
	}
}

// The history has all that was done, by whoever, and is bounded.
func TestHistory(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	r := registry.New(state)
	if all, err := r.HistoryOfAll(); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	var wg sync.WaitGroup
	const each, many = 500, 4
	for _, name := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for range each {
				code := 3
				if err := r.Note(registry.Event{Sandbox: name, Event: registry.EventExecuted, Program: strings.Repeat("p", 1000), Code: &code}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if all, err := r.HistoryOfAll(); err != nil || len(all) != each*many {
		t.Errorf("%d, %v", len(all), err)
	}
	mine, err := r.History("b")
	if err != nil || len(mine) != each || mine[0].Sandbox != "b" || *mine[0].Code != 3 || len(mine[0].Program) > 300 {
		t.Errorf("%d, %v", len(mine), err)
	}
	// What a crash has left of a line is passed over.
	audit := filepath.Join(state, registry.Folder, "audit.jsonl")
	f, err := os.OpenFile(audit, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{\"at\":\nnot json\n"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if mine, err := r.History("b"); err != nil || len(mine) != each {
		t.Errorf("%d, %v", len(mine), err)
	}
	// What a user has named at length keeps nobody from reading the rest.
	if err := r.Note(registry.Event{Sandbox: "b", Event: registry.EventRestored, Detail: strings.Repeat("x", 100_000)}); err != nil {
		t.Fatal(err)
	}
	if mine, err := r.History("b"); err != nil || len(mine) != each+1 {
		t.Errorf("%d, %v", len(mine), err)
	}
	for range 40_000 {
		if err := r.Note(registry.Event{Sandbox: "e", Event: registry.EventExecuted, Program: strings.Repeat("p", 100)}); err != nil {
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
	if all, err := r.History("e"); err != nil || size > 5<<20 || len(all) < 5000 {
		t.Errorf("%d bytes, %d events, %v", size, len(all), err)
	}
}
