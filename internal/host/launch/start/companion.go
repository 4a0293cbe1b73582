package start

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (st *Starter) companionFor(ctx context.Context, j *job.Job, rec *store.Record, info runtime.Info) error {
	o := &j.Order
	if j.LocalRepo == "" && len(o.HostImages) == 0 {
		return nil
	}
	cfg := companion.Config{
		TaskID: rec.TaskID, AttemptID: rec.AttemptID, Dir: st.Host.Store.TaskDir(rec.TaskID), Images: slices.Sorted(maps.Keys(o.HostImages)),
		Repo: j.LocalRepo, TargetBranch: o.TargetBranch, Listen: "127.0.0.1:0",
	}
	if info.Local && info.Gateway != "" {
		cfg.Listen = info.Gateway + ":0"
	}
	ready, err := st.StartCompanion(ctx, cfg)
	if err != nil && info.Rootless && j.LocalRepo != "" {
		return fault.New(workorder.ExitBox, fmt.Errorf("start companion: %w", err), runtime.RootlessHint)
	}
	if err != nil {
		return fault.New(workorder.ExitBox, fmt.Errorf("start companion: %w", err), "its log is "+filepath.Join(cfg.Dir, companion.LogFile))
	}
	rec.Companion = statedir.ProcessOf(ready.PID)
	if j.LocalRepo != "" {
		o.CloneURL = fmt.Sprintf("https://%s:%d/repo.git", companion.BoxName, ready.Port)
		j.Git = &workorder.GitCredential{Username: "sandbox", Token: ready.Token, CA: ready.CA}
	}
	return nil
}
