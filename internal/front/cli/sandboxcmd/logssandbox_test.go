package sandboxcmd

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
)

// TestGuestLog: events keep their time, other lines get that of the event before them, and skipped steps are left out.
func TestGuestLog(t *testing.T) {
	t.Parallel()
	lines := []string{
		"starting",
		`{"seq":1,"time":"2026-01-02T03:04:05Z","type":"step.finished","name":"clone","status":"done","duration_ms":267}`,
		`{"seq":2,"time":"2026-01-02T03:04:06Z","type":"step.finished","name":"setup","status":"skipped"}`,
		`{"seq":3,"time":"2026-01-02T03:04:07Z","type":"network","name":"example.com","status":"refused","text":"no rule"}`,
		"panic: x",
	}
	for verbose, want := range map[bool]int{false: 4, true: 5} {
		g := &guestLog{verbose: verbose}
		for _, l := range lines {
			g.line([]byte(l))
		}
		if len(g.entries) != want || g.lines != len(lines) {
			t.Fatalf("%d lines, %v", g.lines, g.entries)
		}
		last := g.entries[want-1]
		if !g.entries[0].at.IsZero() || !last.at.Equal(time.Date(2026, 1, 2, 3, 4, 7, 0, time.UTC)) || last.text != "panic: x" {
			t.Errorf("%v", g.entries)
		}
		if !slices.ContainsFunc(g.entries, func(e logEntry) bool {
			return strings.Contains(e.text, "example.com") && strings.Contains(e.text, "refused")
		}) {
			t.Errorf("%v", g.entries)
		}
	}
	code := 3
	if got := historyLine(sandboxstore.Event{Event: sandboxstore.EventExecuted, Program: "make", Code: &code}); !strings.Contains(got, "make") || !strings.Contains(got, "3") {
		t.Error(got)
	}
}
