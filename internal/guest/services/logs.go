package services

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// maxServiceLog bounds what is kept of one service, in bytes.
	maxServiceLog = 8 << 20
	tailLines     = "40"
	maxTail       = 4 << 10
	// tailTimeout bounds reading a log's end for an error message, after the
	// service's own time has run out.
	tailTimeout = 5 * time.Second
)

func (s *Stack) logName(u *unit) string { return "service-" + u.spec.Name + ".log" }

func (s *Stack) logRel(u *unit) string { return filepath.Join(s.cfg.LogRel, s.logName(u)) }

// follow copies the service's output to its log file until it ends.
func (s *Stack) follow(ctx context.Context, u *unit) {
	f, err := os.OpenFile(filepath.Join(s.cfg.LogDir, s.logName(u)), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		s.cfg.Log.Warn("log of service", "service", u.spec.Name, "err", err)
		return
	}
	ctx, u.logCancel = context.WithCancel(context.WithoutCancel(ctx))
	s.watched.Go(func() {
		defer f.Close()
		r, err := s.cfg.Client.ContainerLogs(ctx, u.id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
		if err != nil {
			s.cfg.Log.Warn("log of service", "service", u.spec.Name, "err", err)
			return
		}
		defer r.Close()
		w := proc.NewHead(f, maxServiceLog)
		_, _ = stdcopy.StdCopy(w, w, r) // ends with the container or with the engine
	})
}

// logTail is the end of the service's output.
func (s *Stack) logTail(ctx context.Context, u *unit) string {
	if u.id == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tailTimeout)
	defer cancel()
	r, err := s.cfg.Client.ContainerLogs(ctx, u.id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: tailLines})
	if err != nil {
		return fmt.Sprintf("(log not readable: %v)", err)
	}
	defer r.Close()
	var b strings.Builder
	_, _ = stdcopy.StdCopy(&b, &b, r) // what was read is better than nothing
	t := strings.TrimSpace(b.String())
	if len(t) > maxTail {
		t = "[…] " + t[len(t)-maxTail:]
	}
	return strings.ToValidUTF8(t, "�")
}
