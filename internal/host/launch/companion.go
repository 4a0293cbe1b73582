package launch

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// companionPoll is how often the companion's end is looked for.
const companionPoll = 20 * time.Millisecond

func (l *Launcher) companionFor(ctx context.Context, job *Job, rec *store.Record, info engine.Info) error {
	o := &job.Order
	if job.LocalRepo == "" && len(o.HostImages) == 0 {
		return nil
	}
	cfg := companion.Config{
		TaskID: rec.TaskID, AttemptID: rec.AttemptID, Dir: l.Store.TaskDir(rec.TaskID), Images: slices.Sorted(maps.Keys(o.HostImages)),
		Repo: job.LocalRepo, TargetBranch: o.TargetBranch, Listen: "127.0.0.1:0",
	}
	if info.Local && info.Gateway != "" {
		cfg.Listen = info.Gateway + ":0"
	}
	ready, err := l.StartCompanion(ctx, cfg)
	if err != nil && info.Rootless && job.LocalRepo != "" {
		return fault.New(workorder.ExitBox, fmt.Errorf("start companion: %w", err), engine.RootlessHint)
	}
	if err != nil {
		return fault.New(workorder.ExitBox, fmt.Errorf("start companion: %w", err), "its log is "+filepath.Join(cfg.Dir, companion.LogFile))
	}
	rec.Companion = store.ProcessOf(ready.PID)
	if job.LocalRepo != "" {
		o.CloneURL = fmt.Sprintf("https://%s:%d/repo.git", companion.BoxName, ready.Port)
		job.Git = &workorder.GitCredential{Username: "sandbox", Token: ready.Token, CA: ready.CA}
	}
	return nil
}

// endCompanion waits for the companion to notice that the box is gone, and ends
// it when it does not. It leaves with the box by itself; this makes sure.
func (l *Launcher) endCompanion(ctx context.Context, rec *store.Record, hadBox bool) {
	p := rec.Companion
	if p == nil {
		return
	}
	if !hadBox || !waitGone(ctx, p, companionExit) {
		// It may have ended long ago, and its id be another's by now. It is gone then, which is what is wanted.
		_ = p.Signal(unix.SIGTERM)
		if !waitGone(ctx, p, companionExit) {
			_ = p.Signal(unix.SIGKILL)
		}
	}
	rec.Companion = nil
}

func waitGone(ctx context.Context, p *store.Process, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	t := time.NewTicker(companionPoll)
	defer t.Stop()
	for p.Alive() {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
	return true
}
