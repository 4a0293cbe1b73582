package roles

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/initd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rescue"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/setupcache"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Rescue lands the work that boot could not land before it died.
func Rescue(ctx context.Context, log *slog.Logger) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, initd.LongStop)
	initd.Listen()
	rec, err := openRecord(os.Stdout, false)
	if err != nil {
		log.Error("rescue", "error", err)
		return workorder.ExitBox
	}
	r := rescue.Rescue{
		Log: log, Rec: rec, Signals: signals, Logs: filepath.Join(boxPaths().out, workorder.LogsDir), Secrets: secrets,
		Open: func(env *workorder.Envelope, git *proc.Cgroup, mask *redact.Set) (*rootgit.Repositories, *proc.Credential, error) {
			cred, err := sandboxUser(git)
			if err != nil {
				return nil, nil, err
			}
			if err := setupcache.Hold(boxPaths().layers); err != nil {
				rec.Warn("another sandbox may remove files of this one: " + err.Error())
			}
			space := &rootgit.Workspace{Dir: workorder.Workspace, User: cred, Home: workorder.SandboxHome}
			return openRepository(log, env, space, cred, rec.Emit, mask.String), cred, nil
		},
	}
	return r.Run(ctx, os.Stdin)
}
