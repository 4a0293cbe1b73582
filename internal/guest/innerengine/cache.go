package innerengine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/layercache"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/services"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/setupcache"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// cacheLimit bounds a maintenance box, whose CLI may have died.
const cacheLimit = 2 * time.Hour

// cacheServer is the maintenance box of the layer cache. It runs only the product's own code.
type cacheServer struct {
	log *slog.Logger
	out io.Writer

	mu  sync.Mutex
	seq int64
}

// ServeCache executes the request at the start of from, answers on out, and returns an exit code.
func ServeCache(ctx context.Context, log *slog.Logger, verb string, from io.Reader, out io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, cacheLimit, fmt.Errorf("not done after %s", cacheLimit))
	defer cancel()
	k := &cacheServer{log: log, out: out}
	in := bufio.NewReaderSize(from, workorder.MaxCacheRequest)
	req, err := readRequest(in)
	var rep *workorder.CacheReport
	if err == nil {
		rep, err = k.do(ctx, verb, req, in)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	k.report(rep, err)
	// A client that is still writing an archive must see the answer before the connection breaks.
	_, _ = io.Copy(io.Discard, in)
	if err != nil {
		return workorder.ExitGeneral
	}
	return workorder.ExitOK
}

// readRequest reads the first line; following data stays in the reader.
func readRequest(in *bufio.Reader) (*workorder.CacheRequest, error) {
	type read struct {
		line []byte
		err  error
	}
	c := make(chan read, 1)
	go func() {
		line, err := in.ReadSlice('\n')
		c <- read{bytes.Clone(line), err}
	}()
	select {
	case r := <-c:
		if r.err != nil {
			return nil, fmt.Errorf("read the request from standard input: %w", r.err)
		}
		var req workorder.CacheRequest
		if err := json.Unmarshal(r.line, &req); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		if req.Version != workorder.Version {
			return nil, fmt.Errorf("the request has version %d, this program reads version %d", req.Version, workorder.Version)
		}
		return &req, nil
	case <-time.After(workorder.OrderDeadline):
		return nil, fmt.Errorf("no request on standard input within %s", workorder.OrderDeadline)
	}
}

func (k *cacheServer) do(ctx context.Context, verb string, req *workorder.CacheRequest, in io.Reader) (*workorder.CacheReport, error) {
	up := layercache.Maintainer{Dir: workorder.CacheDir, Log: k.log}
	kept := setupcache.Maintainer{Dir: workorder.CacheDir, Log: k.log}
	switch verb {
	case workorder.CacheList:
		r, err := up.List(ctx)
		if err == nil {
			err = kept.List(ctx, r)
		}
		return r, err
	case workorder.CachePrune:
		age := time.Duration(req.OlderThanSeconds * float64(time.Second))
		r, err := up.Prune(ctx, layercache.PruneOptions{OlderThan: age, DryRun: req.DryRun})
		if err == nil {
			err = kept.Prune(ctx, r, age, req.DryRun)
		}
		return r, err
	case workorder.CacheLoad:
		return k.bring(ctx, req, func(ctx context.Context, eng *dockerd.Engine) ([]string, error) {
			return services.Load(ctx, eng.Client(), in, func(line string) {
				k.emit(workorder.Event{Type: workorder.EventService, Name: "archive", Status: "loading", Text: line})
			})
		})
	case workorder.CachePull:
		return k.bring(ctx, req, func(ctx context.Context, eng *dockerd.Engine) ([]string, error) {
			return services.Bring(ctx, services.Config{
				Client: eng.Client(), Emit: k.emit, Inbox: workorder.ImageInbox, HostImages: req.HostImages, Log: k.log,
			}, req.Images)
		})
	case workorder.CacheExport:
		r := &workorder.CacheReport{}
		return r, kept.Export(ctx, r, req.ID, req.Snapshots, k.pipe)
	case workorder.CacheImport:
		r := &workorder.CacheReport{}
		return r, kept.Import(ctx, r, req.ID, req.Repo, in)
	}
	return nil, fmt.Errorf("entrypoint cache: unknown command %q", verb)
}

// trackedDataRoot records whether the engine's data root is in the cache.
type trackedDataRoot struct {
	*layercache.Cache
	placed bool
	note   string
}

func (h *trackedDataRoot) Prepare(ctx context.Context, driver string, uid, gid int) (placed bool, note string, err error) {
	h.placed, h.note, err = h.Cache.Prepare(ctx, driver, uid, gid)
	return h.placed, h.note, err
}

// bring starts an engine like a run would, lets get fill it, and publishes the new images.
func (k *cacheServer) bring(
	ctx context.Context, req *workorder.CacheRequest, get func(context.Context, *dockerd.Engine) ([]string, error),
) (rep *workorder.CacheReport, err error) {
	warn := func(text string) { k.emit(workorder.Event{Type: workorder.EventWarning, Text: text}) }
	cache := &trackedDataRoot{Cache: layercache.New(layercache.Config{
		Dir: workorder.CacheDir, DataRoot: workorder.DataRoot, ID: req.ID, Images: req.Images, Layers: true, Log: k.log,
	})}
	eng, err := dockerd.New(dockerd.Config{
		DataRoot: workorder.DataRoot, RemapUser: workorder.SandboxUser, DataRootProvider: cache, Warn: warn, Log: k.log,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		// A stopped engine first releases the data root.
		end := context.WithoutCancel(ctx)
		eng.Stop(end)
		err = errors.Join(err, cache.Close())
	}()
	if err := errors.Join(eng.Listen(ctx), eng.Start(ctx)); err != nil {
		return nil, err
	}
	if !cache.placed {
		return nil, fmt.Errorf("this machine's sandboxes cannot use a layer cache: %s", cache.note)
	}
	names, geterr := get(ctx, eng)
	for _, n := range names {
		if !slices.Contains(req.Images, n) {
			cache.Want(n)
		}
	}
	n, err := cache.Publish(ctx)
	return &workorder.CacheReport{
		Stores: []workorder.CacheStore{}, Brought: append([]string{}, names...), NewLayers: n,
	}, errors.Join(geterr, err)
}

// pipe opens the pipe that the host reads. It ends with ctx.
func (k *cacheServer) pipe(ctx context.Context) (io.WriteCloser, error) {
	if err := unix.Mkfifo(workorder.CachePipe, 0o600); err != nil {
		return nil, fmt.Errorf("make the pipe %s: %w", workorder.CachePipe, err)
	}
	k.emit(workorder.Event{Type: workorder.EventCachePipe})
	type opened struct {
		f   *os.File
		err error
	}
	c := make(chan opened, 1)
	go func() {
		f, err := os.OpenFile(workorder.CachePipe, os.O_WRONLY, 0)
		c <- opened{f, err}
	}()
	select {
	case o := <-c:
		if o.err == nil {
			context.AfterFunc(ctx, func() { _ = o.f.Close() })
		}
		return o.f, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (k *cacheServer) emit(e workorder.Event) { k.write(workorder.CacheLine{Event: e}) }

func (k *cacheServer) report(rep *workorder.CacheReport, err error) {
	line := workorder.CacheLine{Event: workorder.Event{Type: workorder.EventCacheReport, Status: "ok"}, Report: rep}
	if err != nil {
		line.Status, line.Text = "error", err.Error()
	}
	k.write(line)
}

func (k *cacheServer) write(line workorder.CacheLine) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seq++
	line.Seq, line.Time = k.seq, time.Now().UTC()
	if err := json.NewEncoder(k.out).Encode(line); err != nil {
		k.log.Error("answer", "error", err)
	}
}
