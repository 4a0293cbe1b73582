// Package cacheclient manages the layer cache from the host. The cache is a volume that only a container can access, so
// each request runs our program in a confined container, without task and repository, and removes it afterwards.
package cacheclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	pollPause    = 100 * time.Millisecond
	engineGone   = 30 * time.Second    // how long the engine may be unavailable
	cleanTimeout = 30 * time.Second    // of removing the container, which the user cannot interrupt
	stopGrace    = workorder.StopGrace // for ending its engine
	maxLine      = 16 << 20            // bytes of the answer's longest line, the report of a cache with thousands of images
	maxTail      = 2 << 10             // bytes of the container's log in an error
)

// Images puts the image of the container on the engine.
type Images interface {
	Ensure(ctx context.Context, name string, parts []string, progress func(workorder.Event)) (workorder.Image, error)
}

// Client runs containers that manage the cache. Its methods may be called concurrently.
type Client struct {
	Engine runtime.Runtime
	Images Images
	Owner  string // label of leftovers if this process is killed
	Dir    string // existing directory for temporary files
	Log    *slog.Logger
	Show   func(workorder.Event) // if non-nil, is called for each event, from one goroutine at a time

	// Settings of the container, as for a run.
	Image, Isolation, OCIRuntime, CacheVolume string
}

// Do carries out one request. An error may come with the report of the part that was done. When ctx ends, the container is stopped; when
// hard is closed, it is killed. archive follows the request, or is nil. The content of workorder.CachePipe goes to out. Do returns
// after the container was removed.
func (c *Client) Do(ctx context.Context, hard <-chan struct{}, verb string, req workorder.CacheRequest,
	archive io.Reader, out io.Writer,
) (*workorder.CacheReport, error) {
	info, err := c.Engine.Info(ctx)
	if err != nil {
		return nil, exiterr.New(workorder.ExitBox, err, "start the Docker engine, or point DOCKER_HOST at one that runs")
	}
	img, err := c.Images.Ensure(ctx, c.Image, nil, c.show)
	if err != nil {
		return nil, err
	}
	req.Version, req.ID = workorder.Version, workorder.CacheBoxPrefix+strings.ToLower(rand.Text()[:8])
	if verb == workorder.CachePull {
		req.HostImages = c.offer(ctx, req.Images)
	}
	line, err := json.Marshal(req)
	switch {
	case err != nil:
		return nil, err
	case len(line) >= workorder.MaxCacheRequest:
		return nil, exiterr.New(workorder.ExitUsage, fmt.Errorf("the request has %d bytes, more than %d", len(line), workorder.MaxCacheRequest),
			"name fewer images")
	}
	s := &exchange{client: c, id: req.ID, begun: make(chan struct{}), log: proc.NewTail(maxTail), noMore: func() {}, out: out}
	stdin := io.Reader(bytes.NewReader(append(line, '\n')))
	if archive != nil {
		pipe, stop := giveUp(archive)
		s.noMore = stop
		stdin = io.MultiReader(stdin, pipe)
	}
	if out != nil { // the container ends with its input: when its output was read
		pr, pw := io.Pipe()
		s.noMore = func() { pw.Close() }
		stdin = io.MultiReader(stdin, pr)
	}
	return s.run(ctx, hard, runtime.ContainerSpec{
		Name: "sandbox-agent-" + req.ID, Image: img.Name, Command: []string{workorder.EntrypointIn, "cache", verb},
		// Code that counts or collects boxes needs the label.
		Labels:    map[string]string{workorder.LabelTask: req.ID, workorder.LabelOwner: c.Owner},
		Isolation: c.Isolation, OCIRuntime: c.OCIRuntime, CacheVolume: cmp.Or(c.CacheVolume, runtime.CacheVolume),
		Fuse: info.HasFuse(), CgroupV2: info.CgroupVersion == 2, Seccomp: info.Seccomp,
	}, stdin, req.HostImages)
}

// giveUp returns a reader that stop ends, even while r waits for a terminal or a pipe.
func giveUp(r io.Reader) (pipe io.Reader, stop func()) {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	return pr, func() { pr.CloseWithError(io.ErrClosedPipe) }
}

func (c *Client) show(e workorder.Event) {
	if c.Show != nil {
		c.Show(e)
	}
}

// offer returns the engine's images of these names, with their ids.
func (c *Client) offer(ctx context.Context, images []string) map[string]string {
	ic, ok := c.Engine.(runtime.ImageStore)
	if !ok {
		return nil
	}
	have := map[string]string{}
	for _, ref := range images {
		// An engine that cannot answer costs only the optimisation.
		if id, err := ic.ImageID(ctx, ref); err == nil && id != "" {
			have[ref] = id
		}
	}
	return have
}

// exchange is the life of one container.
type exchange struct {
	client *Client
	id     string
	begun  chan struct{} // closed when the start has succeeded or failed
	failed error         // of the start; valid after begun
	last   int64         // number of the last line
	answer *workorder.CacheLine
	log    *proc.Tail
	noMore func() // ends the archive
	out    io.Writer
	passed chan error // the end of the passing on to out; nil before its start
}

var errNoAnswer = errors.New("the sandbox ended without an answer")

func (s *exchange) run(ctx context.Context, hard <-chan struct{}, spec runtime.ContainerSpec, stdin io.Reader,
	offered map[string]string,
) (*workorder.CacheReport, error) {
	live, end := context.WithCancel(context.WithoutCancel(ctx)) // until the box has answered
	defer end()
	go func() {
		defer close(s.begun)
		_, s.failed = s.client.Engine.Run(live, spec, stdin)
	}()
	interrupted := make(chan bool, 1)
	go func() { interrupted <- s.stops(ctx, live, hard) }()
	helper := s.handOver(live, offered)
	err := s.follow(live)
	if s.passed != nil {
		if perr := <-s.passed; perr != nil && ctx.Err() == nil {
			err, s.answer = fmt.Errorf("read from the sandbox: %w", perr), nil
		}
	}
	end()
	s.noMore()
	if err == nil {
		<-s.begun // the upload stops when the answer is known
	}
	<-helper
	cleanErr := s.remove(ctx)
	if <-interrupted && (s.answer == nil || s.answer.Status != "ok") { // otherwise the interrupt came too late
		return nil, exiterr.New(workorder.ExitInterrupted, errors.Join(errors.New("interrupted"), cleanErr),
			"the cache is intact; run the command again to continue")
	}
	rep, err := s.outcome(err)
	return rep, errors.Join(err, cleanErr)
}

func (s *exchange) outcome(startErr error) (*workorder.CacheReport, error) {
	switch {
	case s.answer == nil && startErr != nil && !errors.Is(startErr, errNoAnswer):
		return nil, exiterr.New(workorder.ExitBox, fmt.Errorf("start a sandbox for the layer cache: %w", startErr),
			"run `sandbox-agent doctor` to check the engine")
	case s.answer == nil:
		err := errNoAnswer
		if text := strings.TrimSpace(s.log.String()); text != "" {
			err = fmt.Errorf("%w; end of its log:\n%s", err, text)
		}
		return nil, exiterr.New(workorder.ExitBox, err, "if --image names an image of another version, omit it or rebuild the image with "+
			"`sandbox-agent image build`")
	case s.answer.Status != "ok":
		return s.answer.Report, errors.New(s.answer.Text)
	case s.answer.Report == nil:
		return nil, errNoAnswer
	}
	return s.answer.Report, nil
}

// find returns the container, or nil if it is gone or its start failed.
func (s *exchange) find(ctx context.Context) (*runtime.Instance, error) {
	begun := false
	select {
	case <-s.begun:
		if s.failed != nil {
			return nil, nil
		}
		begun = true
	default:
	}
	box, err := runtime.Find(ctx, s.client.Engine, s.id)
	if err == nil && (box == nil && !begun || box != nil && box.State == "created") {
		err = runtime.ErrCreating
	}
	return box, err
}

// follow reads the answer. It tolerates a short absence of the engine.
func (s *exchange) follow(ctx context.Context) error {
	w := &runtime.Watcher{
		Find: s.find,
		Read: func(ctx context.Context, box *runtime.Instance) (bool, error) {
			if err := s.read(ctx, box, !box.Running()); err != nil {
				s.client.Log.Debug("read the answer of the sandbox", "error", err)
			}
			return s.answer != nil, nil
		},
		Patience: engineGone, Pause: pollPause,
	}
	if err := w.Watch(ctx); err != nil {
		return err
	}
	if s.answer != nil {
		return nil
	}
	select {
	case <-s.begun:
		if s.failed != nil {
			return s.failed
		}
	default:
	}
	return errNoAnswer
}

// read reads the output until the answer; if over, all of it.
func (s *exchange) read(ctx context.Context, box *runtime.Instance, over bool) error {
	follow := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.log = proc.NewTail(maxTail) // each read begins at the start of the output
	lines := text.WholeLines(maxLine, func(b []byte) {
		var l workorder.CacheLine
		if json.Unmarshal(b, &l) != nil || l.Seq <= s.last {
			return
		}
		s.last = l.Seq
		if l.Type == workorder.EventCacheReport {
			s.answer = &l
			cancel()
			return
		}
		if l.Type == workorder.EventCachePipe && s.passed == nil {
			s.passed = make(chan error, 1)
			go func() { s.passed <- s.pass(follow, box.ID) }()
			return
		}
		s.client.show(l.Event)
	})
	o := runtime.LogOptions{Stdout: lines, Stderr: s.log}
	if over {
		return s.client.Engine.Logs(ctx, box.ID, o)
	}
	return runtime.Follow(ctx, s.client.Engine, s.id, o)
}

// pass copies the container's pipe to out. After an error it ends the container, which would wait for a reader.
func (s *exchange) pass(ctx context.Context, id string) error {
	x, ok := s.client.Engine.(runtime.Execer)
	if !ok {
		return errors.Join(runtime.ErrUnsupported, s.client.Engine.Stop(ctx, id, 0))
	}
	code, err := x.Exec(ctx, id, runtime.ExecSpec{Argv: []string{"/bin/cat", workorder.CachePipe}, User: "0:0", Stdout: s.out})
	if err == nil && code != 0 {
		err = fmt.Errorf("cat ended with exit code %d", code)
	}
	if err != nil {
		err = errors.Join(err, s.client.Engine.Stop(ctx, id, 0))
	}
	return err
}

// stops ends the container when the user interrupts, and reports whether he did. It returns when live ends.
func (s *exchange) stops(user, live context.Context, hard <-chan struct{}) bool {
	select {
	case <-live.Done():
		return false
	case <-user.Done():
	}
	box := &runtime.Stopper{
		Find: s.find, Stop: s.client.Engine.Stop,
		Failed: func(err error) { s.client.Log.Warn("stop the sandbox", "error", err) },
	}
	defer box.Wait()
	box.Request(live, stopGrace)
	select {
	case <-live.Done():
		return true
	case <-hard:
	}
	box.Request(live, 0)
	<-live.Done()
	return true
}

// handOver serves the engine's images to the container, as a run's companion does. The channel closes when no transfer runs.
func (s *exchange) handOver(ctx context.Context, offered map[string]string) <-chan struct{} {
	done := make(chan struct{})
	if len(offered) == 0 {
		close(done)
		return done
	}
	cfg := companion.Config{TaskID: s.id, Dir: s.client.Dir}
	for name := range offered {
		cfg.Images = append(cfg.Images, name)
	}
	go func() {
		defer close(done)
		in, err := json.Marshal(cfg)
		if err == nil {
			err = companion.Serve(ctx, bytes.NewReader(in), noParent{}, s.client.Engine, slog.New(slog.DiscardHandler))
		}
		if err != nil && ctx.Err() == nil {
			s.client.Log.Warn("hand images to the sandbox", "error", err)
		}
	}()
	return done
}

// noParent is the output of a companion in the same process.
type noParent struct{}

func (noParent) Write(p []byte) (int, error) { return len(p), nil }
func (noParent) Close() error                { return nil }

// remove removes the container with everything that belongs to it.
func (s *exchange) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	box, err := runtime.Find(ctx, s.client.Engine, s.id)
	if err == nil && box != nil {
		err = s.client.Engine.Remove(ctx, box.ID)
	}
	if err != nil {
		return fmt.Errorf("remove the sandbox %s (`sandbox-agent gc` does it later): %w", s.id, err)
	}
	return nil
}
