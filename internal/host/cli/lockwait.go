package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
)

// waiting bounds the wait for another command's decision.
func (a *App) waiting(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return tasks.Waiting(ctx, cmp.Or(a.patience, most))
}
