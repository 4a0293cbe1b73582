package roles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/initd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// standBy boots a box before its order, and waits for the order. It returns the parts with the order.
func standBy(
	ctx context.Context, log *slog.Logger, s *workorder.Standby, rec *record.Recorder, in *workorder.Input, signals <-chan os.Signal,
) (*parts, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	env := &workorder.Envelope{Order: workorder.Order{BoxSpec: s.BoxSpec, Version: s.Version, TaskID: s.ID}}
	p := newParts(log, env, rec)
	if err := p.addBox(s.Hosts); err != nil {
		return nil, err
	}
	b := &boot.Runner{Order: p.order, Rec: rec, Log: log, Space: p.space, Engine: p.engine, Services: p.stack, Network: p.enforcer()}
	booted := make(chan error, 1)
	go func() {
		booted <- b.Standby(ctx, func(ctx context.Context) error { return rootgit.Prefetch(ctx, p.paths.git) })
	}()
	orders := make(chan order, 1)
	var running <-chan time.Time // a ticker stands still while the box is paused
	for seconds := 0; ; {
		select {
		case err := <-booted:
			if err != nil {
				return nil, err
			}
			go func() {
				_, env, err := in.Next()
				orders <- order{env, err}
			}()
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			running = tick.C
			rec.Emit(workorder.Event{Type: workorder.EventStandby, Status: string(workorder.StepDone)})
		case o := <-orders:
			switch {
			case o.err != nil:
				return nil, o.err
			case o.env == nil || !s.Takes(&o.env.Order):
				return nil, errors.New("the order is for a box with another specification")
			}
			*env, p.booted = *o.env, true
			return p, nil
		case text := <-p.lost:
			return nil, errors.New(text)
		case sig := <-signals:
			if sig != initd.LongStop {
				return nil, fmt.Errorf("received a stop signal (%s)", sig)
			}
		case <-running:
			if seconds++; time.Duration(seconds)*time.Second > workorder.OrderDeadline {
				return nil, fmt.Errorf("not paused, and no order within %s", workorder.OrderDeadline)
			}
		}
	}
}

type order struct {
	env *workorder.Envelope
	err error
}

func (p *parts) cleaner(w io.Writer) io.WriteCloser { return &lateCleaner{mask: &p.mask, out: w} }

// lateCleaner removes secrets from a log that may begin before they are known.
type lateCleaner struct {
	mask *atomic.Pointer[redact.Set]
	out  io.Writer
	used *redact.Set
	to   io.WriteCloser // for used; nil before the first write
}

func (c *lateCleaner) Write(p []byte) (int, error) {
	if mask := c.mask.Load(); c.to == nil || mask != c.used {
		if err := c.Close(); err != nil {
			return 0, err
		}
		c.used, c.to = mask, mask.Writer(c.out)
	}
	return c.to.Write(p)
}

func (c *lateCleaner) Close() error {
	if c.to == nil {
		return nil
	}
	return c.to.Close()
}
