package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

const (
	answerTimeout = time.Minute      // bounds a request that engines answer within seconds, also on a loaded machine
	commitTime    = 15 * time.Minute // for gigabytes
	// abandonTime bounds the wait for the creation of a container after the caller's context has ended.
	abandonTime   = 3 * time.Second
	abandonedTime = 5 * time.Second // bounds the cleanup for a caller whose context has ended
	// stateEvery is the interval of checks whether the container of a stream that is being opened still exists.
	stateEvery = time.Second
)

// answered bounds a request by answerTimeout.
func (e *api) answered(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.answerTime)
}

// cleanup returns a context for a cleanup. It is short after ctx has ended, since a user waits for the program to exit.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := removeTimeout
	if ctx.Err() != nil {
		limit = abandonedTime
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// opened bounds the wait for the beginning of a response by answerTimeout, but not its body.
func (e *api) opened(ctx context.Context, open func(ctx context.Context) (io.ReadCloser, error)) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(e.answerTime, func() { cancel(context.DeadlineExceeded) })
	r, err := open(ctx)
	timer.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			err = context.DeadlineExceeded
		}
		cancel(nil)
		return nil, err
	}
	return &body{r, cancel}, nil
}

// body is the body of a response; Close ends its request.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// hijacked opens a stream of container id; "" means one that need not run. The engine's client ignores the context here, and
// would wait forever for an engine that hangs, or whose container is being removed.
func (e *api) hijacked(ctx context.Context, id string, open func() (types.HijackedResponse, error)) (types.HijackedResponse, error) {
	ctx, cancel := e.answered(ctx)
	defer cancel()
	type answer struct {
		stream types.HijackedResponse
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		s, err := open()
		answers <- answer{s, err}
	}()
	tick := time.NewTicker(stateEvery)
	defer tick.Stop()
	for {
		var why error
		select {
		case a := <-answers:
			return a.stream, a.err
		case <-ctx.Done():
			why = context.Cause(ctx)
		case <-tick.C:
			if id != "" {
				why = e.startable(ctx, id)
			}
		}
		if why != nil {
			go func() { // close a late stream
				if a := <-answers; a.err == nil {
					a.stream.Close()
				}
			}()
			return types.HijackedResponse{}, why
		}
	}
}

// startable returns an error if no stream can be opened to a container any longer. Without an answer of the engine it returns nil.
func (e *api) startable(ctx context.Context, id string) error {
	in, err := e.c.ContainerInspect(ctx, id)
	if err = e.wrap("inspect the sandbox", err); errors.Is(err, runtime.ErrNotFound) {
		return err
	}
	if err != nil || in.State == nil {
		return nil
	}
	switch in.State.Status {
	case container.StateRemoving, container.StateDead:
		return fmt.Errorf("inspect the sandbox: %w: it is being removed", runtime.ErrNotFound)
	case container.StateExited:
		return fmt.Errorf("inspect the sandbox: %w", runtime.ErrExited)
	}
	return nil
}

// create creates a container. It does not cancel the request with ctx: the engine would still create a container, with an
// unknown id. After ctx has ended, it waits shortly for the container and removes it; gc removes a later one.
func (e *api) create(ctx context.Context, create func(ctx context.Context) (container.CreateResponse, error)) (string, error) {
	type answer struct {
		container.CreateResponse
		error
	}
	answers := make(chan answer, 1)
	go func() {
		long, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.createTime)
		defer cancel()
		made, err := create(long)
		answers <- answer{made, err}
	}()
	remove := func(a answer) {
		if a.error == nil {
			clean, cancel := cleanup(ctx)
			defer cancel()
			_ = e.Remove(clean, a.ID) // otherwise gc removes it
		}
	}
	select {
	case a := <-answers:
		return a.ID, a.error
	case <-ctx.Done():
	}
	select {
	case a := <-answers:
		remove(a)
	case <-time.After(abandonTime):
		go func() { remove(<-answers) }()
	}
	return "", context.Cause(ctx)
}
