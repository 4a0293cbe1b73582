package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
)

const (
	// maxServiceLog bounds the stored output of one service, in bytes.
	maxServiceLog = 8 << 20
	tailLines     = "40"
	maxTail       = 4 << 10
	// tailTimeout bounds reading the end of a log for an error message, after the service's own time has run
	// out.
	tailTimeout = 5 * time.Second
)

func (s *Stack) logName(u *unit) string { return "service-" + u.spec.Name + ".log" }

func (s *Stack) logRel(u *unit) string { return filepath.Join(s.cfg.LogRel, s.logName(u)) }

// logFile is the log of one service: the first maxServiceLog bytes of its output, with secrets redacted.
type logFile struct {
	io.WriteCloser // redacts secrets
	f              *os.File
}

// newLog creates a log. clean is nil if there are no secrets.
func newLog(dir, name string, clean func(io.Writer) io.WriteCloser) (*logFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if clean == nil {
		clean = (*redact.Set)(nil).Writer
	}
	return &logFile{WriteCloser: clean(proc.NewHead(f, maxServiceLog)), f: f}, nil
}

func (l *logFile) Close() error { return errors.Join(l.WriteCloser.Close(), l.f.Close()) }

// follow copies the service's output to its log file until it ends.
func (s *Stack) follow(ctx context.Context, u *unit) {
	log, err := newLog(s.cfg.LogDir, s.logName(u), s.cfg.Clean)
	if err != nil {
		s.cfg.Log.Warn("log of service", "service", u.spec.Name, "err", err)
		return
	}
	ctx, u.logCancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer log.Close()
		r, err := s.cfg.Client.ContainerLogs(ctx, u.id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
		if err != nil {
			s.cfg.Log.Warn("log of service", "service", u.spec.Name, "err", err)
			return
		}
		defer r.Close()
		_, _ = stdcopy.StdCopy(log, log, r) // ends with the container or with the engine
	}()
}

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
	tail := proc.NewTail(maxTail)
	_, _ = stdcopy.StdCopy(tail, tail, r) // partial output is better than none
	return strings.ToValidUTF8(strings.TrimSpace(tail.String()), "�")
}
