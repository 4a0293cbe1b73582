package taskrunner

import (
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A box that vanishes in a repair round has told what all rounds cost.
func TestUsageOfRoundsAddsUp(t *testing.T) {
	t.Parallel()
	var got []workorder.Usage
	emit := adding(workorder.Usage{CostUSD: new(4.0), InputTokens: 10}, func(e workorder.Event) {
		if e.Usage != nil {
			got = append(got, *e.Usage)
		}
	})
	emit(workorder.Event{Type: workorder.EventAgentText, Text: "x"})
	emit(workorder.Event{Type: workorder.EventAgentUsage, Usage: &workorder.Usage{CostUSD: new(0.5), InputTokens: 1}})
	emit(workorder.Event{Type: workorder.EventAgentUsage, Usage: &workorder.Usage{CostUSD: new(1.0)}})
	if len(got) != 2 || *got[0].CostUSD != 4.5 || got[0].InputTokens != 11 || *got[1].CostUSD != 5 || got[1].InputTokens != 0 {
		t.Errorf("%+v", got)
	}
}

// An agent without a directory for pictures works as well, and its environment names none.
func TestNoFolderForPictures(t *testing.T) {
	t.Parallel()
	task := &Task{}
	cfg := runner.Config{OutDir: filepath.Join(t.TempDir(), "no", "out"), Redact: redact.Named(nil)}
	if _, warnings := task.giveMediaDir(&cfg)(); len(warnings) != 1 || len(cfg.Env) != 0 {
		t.Errorf("%q %q", warnings, cfg.Env)
	}
}
