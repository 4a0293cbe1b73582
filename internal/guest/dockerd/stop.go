package dockerd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxRestarts is how often a daemon that crashed is replaced in one run: once
// is bad luck, twice is a daemon that cannot live here.
const maxRestarts = 1

// watch replaces a daemon that ends by itself, once, and gives the engine up
// after that.
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
		e.mu.Lock()
		stopping := e.stopping
		e.mu.Unlock()
		if stopping {
			return
		}
		e.cfg.Log.Error("inner engine", "err", err)
		if restarts == maxRestarts {
			e.finish(fmt.Errorf("the inner engine ended again after a restart: %w", err))
			return
		}
		e.note("restarted: %v", err)
		if err := e.restart(ctx, dead); err != nil {
			e.finish(fmt.Errorf("restart inner engine: %w", err))
			return
		}
	}
}

func (e *Engine) restart(ctx context.Context, dead *daemon) error {
	if dead.name == "containerd" {
		// dockerd reconnects by itself.
		return e.startContainerd(ctx)
	}
	return e.startDockerd(ctx)
}

// Stop ends the engine within workorder.EngineGrace or ctx, whichever is
// shorter: containers are killed, not asked (one that ignores SIGTERM costs ten seconds), because
// what they hold is gone with the box. It returns what had to be forced.
func (e *Engine) Stop(ctx context.Context) {
	e.stopOnce.Do(func() {
		e.mu.Lock()
		e.stopping = true
		d, lock := e.daemons, e.lock
		e.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workorder.EngineGrace)
		defer cancel()
		if d.dockerd != nil {
			// Half of the time is the daemons' own.
			kctx, kcancel := context.WithTimeout(ctx, workorder.EngineGrace/2)
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

func (e *Engine) killContainers(ctx context.Context) {
	start := time.Now()
	all, err := e.cli.ContainerList(ctx, container.ListOptions{})
	if err != nil {
		e.cfg.Log.Debug("stop inner engine: list containers", "err", err)
		return
	}
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			if err := e.cli.ContainerKill(ctx, c.ID, "KILL"); err != nil {
				e.cfg.Log.Debug("stop inner engine: kill container", "id", c.ID, "err", err)
			}
		})
	}
	wg.Wait()
	e.cfg.Log.Debug("killed inner containers", "count", len(all), "after", time.Since(start))
}
