package dockerd

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxRestarts bounds the replacements of a crashed daemon in one run.
const maxRestarts = 1

// watch replaces a daemon that ends by itself, once, and ends the engine after that.
func (e *Engine) watch(ctx context.Context) {
	for restarts := 0; ; restarts++ {
		e.mu.Lock()
		d := e.daemons
		e.mu.Unlock()
		var dead *daemon
		select {
		case <-d.dockerd.p.Done():
			dead = d.dockerd
		case <-d.containerd.p.Done():
			dead = d.containerd
		}
		err := dead.exited()
		e.renewing.Lock() // waits for a renewal
		e.mu.Lock()
		replaced := e.daemons != d
		e.mu.Unlock()
		e.renewing.Unlock()
		if e.haltedErr() != nil {
			return
		}
		if replaced {
			restarts--
			continue
		}
		e.cfg.Log.Error("inner engine", "error", err)
		if restarts == maxRestarts {
			e.giveUp(fmt.Errorf("the inner Docker engine ended again after a restart: %w", err))
			return
		}
		e.note("restarted: %v", err)
		if rerr := e.restart(ctx, dead); rerr != nil {
			e.giveUp(fmt.Errorf("the inner Docker engine could not be restarted: %w; it ended because: %w", rerr, err))
			return
		}
		e.cfg.Warn(fmt.Sprintf("the inner Docker engine ended by itself and was restarted: %v", err))
	}
}

// giveUp ends the engine for good. During Stop it warns of nothing.
func (e *Engine) giveUp(err error) {
	if e.haltedErr() == nil {
		e.cfg.Warn(err.Error())
	}
	e.finish(err)
}

func (e *Engine) restart(ctx context.Context, dead *daemon) error {
	if dead.name == "containerd" {
		// dockerd reconnects by itself.
		return e.startContainerd(ctx)
	}
	return e.startDockerd(ctx)
}

// haltedErr returns the error of starts after Stop; nil before it.
func (e *Engine) haltedErr() error {
	select {
	case <-e.halt:
		return errHalted
	default:
		return nil
	}
}

// abort kills the processes of a failed start.
func (e *Engine) abort() {
	e.mu.Lock()
	d := e.daemons
	e.mu.Unlock()
	for _, d := range []*daemon{d.dockerd, d.containerd} {
		if d != nil {
			d.p.Signal(syscall.SIGKILL)
		}
	}
}

// Stop ends the engine within workorder.EngineGrace or ctx, whichever is shorter. It kills containers, whose data ends
// with the box.
func (e *Engine) Stop(ctx context.Context) {
	e.stopOnce.Do(func() {
		close(e.halt)
		grace := workorder.EngineGrace
		if e.cfg.KeepData {
			grace = keptGrace
		}
		ctx, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		e.settle(ctx)
		e.mu.Lock()
		d, lock := e.daemons, e.lock
		e.mu.Unlock()
		if d.dockerd != nil {
			// Half of the time is the daemons' own.
			kctx, kcancel := context.WithTimeout(ctx, grace/2)
			e.killContainers(kctx)
			kcancel()
			d.dockerd.end(ctx)
		}
		d.containerd.end(ctx)
		e.finish(nil)
		if lock != nil {
			_ = lock.Close() // frees the data root
		}
	})
}

// settle makes sure that no start is running or will begin.
func (e *Engine) settle(ctx context.Context) {
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		e.startOnce.Do(func() {
			e.startErr = e.haltedErr()
		})
	}()
	select {
	case <-settled:
	case <-ctx.Done():
	}
}

// keptGrace bounds the shutdown of an engine whose containers are kept.
const keptGrace = 8 * time.Second

func (e *Engine) killContainers(ctx context.Context) {
	start := time.Now()
	all, err := e.cli.ContainerList(ctx, container.ListOptions{})
	if err != nil {
		e.cfg.Log.Debug("stop inner engine: list containers", "error", err)
		return
	}
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			end := func() error { return e.cli.ContainerKill(ctx, c.ID, "KILL") }
			if e.cfg.KeepData {
				seconds := int(keptGrace/2/time.Second) - 1
				end = func() error { return e.cli.ContainerStop(ctx, c.ID, container.StopOptions{Timeout: &seconds}) }
			}
			if err := end(); err != nil {
				e.cfg.Log.Debug("stop inner engine: kill container", "id", c.ID, "error", err)
			}
		})
	}
	wg.Wait()
	e.cfg.Log.Debug("killed inner containers", "count", len(all), "after", time.Since(start))
}
