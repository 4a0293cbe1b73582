package app

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/presets"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// reloadInterval is the time between two looks at the files of presets.
const reloadInterval = time.Second

// ServedPresets are the presets of a server. They are read again when their files change.
type ServedPresets struct {
	*presets.Registry
	warn  func(string)
	log   *slog.Logger
	built chan struct{} // receives a value when Build has built an artifact; nil without Build
}

// Served reads the presets of a server. A problem of one preset affects no other one, and goes to the log, too.
func (c Code) Served(log *slog.Logger) *ServedPresets {
	s := &ServedPresets{warn: c.Warn, log: log}
	o := c.presetOptions()
	o.Warn = func(what string) {
		log.Warn(what)
		c.Warn(what)
	}
	var err error
	if s.Registry, err = presets.Open(o); err != nil {
		o.Warn(oneLine(err))
	}
	return s
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Build builds the artifacts of SANDBOX_AGENT_ARTIFACTS in the background, until done is called. KeepUp, called after it, reads them.
func (s *ServedPresets) Build(ctx context.Context, c Code) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.built = make(chan struct{}, 1)
	var work sync.WaitGroup
	work.Go(func() {
		if c.BuildListed(ctx, func(what string) {
			s.log.Warn(what)
			s.warn(what)
		}) {
			s.built <- struct{}{}
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}

// KeepUp reads the presets again when their files change, when Build ends, and when asked receives a value. It reports changes until
// done is called.
func (s *ServedPresets) KeepUp(ctx context.Context, asked <-chan struct{}, changed func()) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(reloadInterval)
		defer tick.Stop()
		for {
			read := s.Refresh
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-s.built:
				read = s.Reload
			case <-asked:
				read = s.Reload
				s.log.Info("reload")
			}
			others, err := read()
			if err != nil {
				s.log.Error("presets stay as they were", "error", err)
				s.warn("presets stay as they were: " + oneLine(err))
			}
			if others {
				changed()
			}
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}

// The log of a server whose client hides standard error.
const (
	serverLogVariable = "SANDBOX_AGENT_MCP_LOG"
	serverLog         = "sandbox-agent-mcp.log"
	maxServerLog      = 8 << 20 // bytes
)

// ServerLog opens the log of a server for agents. If the user has named no file and the default one cannot be opened, there is no log.
func (c Code) ServerLog(level slog.Level) (log *slog.Logger, done func(), err error) {
	named := c.Getenv(serverLogVariable)
	file, err := proc.OpenLog(cmp.Or(named, filepath.Join(cmp.Or(c.Getenv("TMPDIR"), os.TempDir()), serverLog)), maxServerLog)
	if err != nil && named != "" {
		return nil, nil, exiterr.New(workorder.ExitUsage, err, serverLogVariable+" names the file")
	}
	if err != nil {
		c.Warn("there is no log: " + err.Error())
		return slog.New(slog.DiscardHandler), func() {}, nil
	}
	return slog.New(slog.NewTextHandler(file, &slog.HandlerOptions{Level: level})).With("pid", os.Getpid()), func() { _ = file.Close() }, nil
}
