// Package runtimetest has the shared parts of runtime tests: a fake runtime whose boxes
// are Go functions, and the suite that every runtime must pass.
package runtimetest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Box is a fake box as its program sees it.
type Box struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Stopped is closed by SIGTERM, Killed by SIGKILL.
	Stopped, Killed <-chan struct{}
	// Args are those of a command that was run in the box, and Terminal is its terminal.
	Args     []string
	Terminal *runtime.Terminal
	c        *container
}

// WriteFile puts a file into the box's file system.
func (b *Box) WriteFile(name string, content []byte) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.c.files[name] = content
}

// ReadFile reads a file of the box, for example one that was copied in.
func (b *Box) ReadFile(name string) ([]byte, bool) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	content, ok := b.c.files[name]
	return content, ok
}

// Program is the program of a box; it returns the exit code.
type Program func(*Box) int

// Fake is an engine in memory.
type Fake struct {
	// Programs by image name.
	Programs map[string]Program
	// Images that can be saved, by name.
	Images  map[string][]byte
	Details runtime.Info
	// StuckStreams makes followed streams outlive their box, as engines do now and then.
	StuckStreams bool

	mu    sync.Mutex
	boxes map[string]*container
	next  int
	down  chan struct{} // closed while the engine is away
	cut   chan struct{} // closed to break the streams that are open
	stops []time.Duration
}

var _ runtime.Runtime = (*Fake)(nil)

// NewFake returns an engine that runs the programs.
func NewFake(programs map[string]Program) *Fake {
	return &Fake{
		Programs: programs, boxes: map[string]*container{}, cut: make(chan struct{}),
		Details: runtime.Info{
			ID: "fake", Version: "1.0", OSType: "linux", CgroupVersion: 2, Host: "unix:///fake.sock",
			Runtimes: []string{"runc"},
		},
	}
}

type container struct {
	runtime.Instance
	spec       runtime.ContainerSpec
	mu         sync.Mutex
	grown      *sync.Cond
	out        []chunk
	files      map[string][]byte
	stop, kill chan struct{}
	stopping   sync.Once
	killing    sync.Once
	done       chan struct{}
	more       *io.PipeWriter // standard input after the first document; nil unless it stays open
}

type chunk struct {
	at  time.Time
	err bool
	b   []byte
}

// SetDown makes the engine unavailable, which breaks all streams, or available again.
func (f *Fake) SetDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case down && f.down == nil:
		f.down = make(chan struct{})
		close(f.cut)
		f.cut = make(chan struct{})
	case !down:
		f.down = nil
	}
}

// Break cuts the open streams; the engine stays.
func (f *Fake) Break() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = make(chan struct{})
}

// Count is the number of boxes that exist.
func (f *Fake) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.boxes)
}

// Stops lists the graces of all stops.
func (f *Fake) Stops() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.stops)
}

func (f *Fake) up() error {
	if f.down != nil {
		return fmt.Errorf("fake: %w", runtime.ErrUnavailable)
	}
	return nil
}

func (f *Fake) get(id string) (*container, chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.up(); err != nil {
		return nil, nil, err
	}
	c, ok := f.boxes[id]
	if !ok {
		return nil, nil, fmt.Errorf("sandbox %s: %w", id, runtime.ErrNotFound)
	}
	return c, f.cut, nil
}

// Info implements runtime.Runtime.
func (f *Fake) Info(context.Context) (runtime.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Details, f.up()
}

// Run implements runtime.Runtime.
func (f *Fake) Run(ctx context.Context, spec runtime.ContainerSpec, stdin io.Reader) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.up(); err != nil {
		return "", err
	}
	prog, ok := f.Programs[spec.Image]
	if !ok {
		return "", fmt.Errorf("image %s: %w", spec.Image, runtime.ErrNotFound)
	}
	if spec.OCIRuntime != "" && !slices.Contains(f.Details.Runtimes, spec.OCIRuntime) {
		return "", fmt.Errorf("runtime %s: %w", spec.OCIRuntime, runtime.ErrIsolation)
	}
	for _, c := range f.boxes {
		if c.Name == spec.Name {
			return "", fmt.Errorf("create sandbox %s: %w", spec.Name, runtime.ErrConflict)
		}
	}
	in, err := io.ReadAll(stdin)
	if err != nil {
		return "", err
	}
	f.next++
	c := &container{
		Instance: runtime.Instance{
			ID: fmt.Sprintf("box-%d", f.next), Name: spec.Name, Labels: maps.Clone(spec.Labels), State: "running", Status: "Up", Created: time.Now(),
		},
		spec: spec, files: map[string][]byte{}, stop: make(chan struct{}), kill: make(chan struct{}), done: make(chan struct{}),
	}
	for to, from := range spec.Files {
		if c.files[to], err = os.ReadFile(from); err != nil {
			return "", fmt.Errorf("copy into the sandbox: %w", err)
		}
	}
	c.grown = sync.NewCond(&c.mu)
	f.boxes[c.ID] = c
	input := io.Reader(bytes.NewReader(in))
	if spec.Standby {
		var more io.Reader
		more, c.more = io.Pipe()
		input = io.MultiReader(input, more)
	}
	go f.live(c, prog, input)
	return c.ID, ctx.Err()
}

func (f *Fake) live(c *container, prog Program, in io.Reader) {
	code := make(chan int, 1)
	go func() {
		code <- prog(&Box{
			Stdin: in, Stdout: sink{c, false}, Stderr: sink{c, true}, Stopped: c.stop, Killed: c.kill, c: c,
		})
	}()
	exit := 137
	select {
	case exit = <-code:
	case <-c.kill:
	}
	f.mu.Lock()
	c.State, c.Status = "exited", fmt.Sprintf("Exited (%d)", exit)
	f.mu.Unlock()
	c.mu.Lock()
	close(c.done)
	c.grown.Broadcast()
	c.mu.Unlock()
}

type sink struct {
	c   *container
	err bool
}

func (s sink) Write(p []byte) (int, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	select {
	case <-s.c.done: // output of a program that outlives its box is dropped
	default:
		s.c.out = append(s.c.out, chunk{time.Now(), s.err, bytes.Clone(p)})
		s.c.grown.Broadcast()
	}
	return len(p), nil
}

// Logs implements runtime.Runtime.
func (f *Fake) Logs(ctx context.Context, id string, o runtime.LogOptions) error {
	c, cut, err := f.get(id)
	if err != nil {
		return err
	}
	if o.Tail > 0 && o.Stdout != nil {
		last := &lastLines{w: o.Stdout, n: o.Tail}
		defer last.flush()
		o.Stdout = last
	}
	wake := func() { c.mu.Lock(); c.grown.Broadcast(); c.mu.Unlock() }
	defer context.AfterFunc(ctx, wake)()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-cut:
			wake()
		case <-over:
		}
	}()
	for i := 0; ; i++ {
		ch, state := c.chunk(ctx, i, o.Follow, cut)
		if state == streamEnd && o.Follow && f.StuckStreams {
			<-ctx.Done()
			return ctx.Err()
		}
		switch {
		case state == streamCut:
			return errors.New("read the sandbox's output: unexpected EOF")
		case state == streamCancelled:
			return ctx.Err()
		case state == streamEnd:
			return nil
		case ch.at.Before(o.Since):
		default:
			w := o.Stdout
			if ch.err {
				w = o.Stderr
			}
			if w != nil {
				if _, err := w.Write(ch.b); err != nil {
					return err
				}
			}
		}
	}
}

// lastLines passes on the last lines of what is written to it.
type lastLines struct {
	bytes.Buffer
	w io.Writer
	n int
}

func (l *lastLines) flush() {
	lines := bytes.SplitAfter(l.Bytes(), []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	_, _ = l.w.Write(bytes.Join(lines[max(0, len(lines)-l.n):], nil))
}

type streamState int

const (
	streamChunk streamState = iota
	streamEnd
	streamCut
	streamCancelled
)

// chunk waits for the i-th piece of output.
func (c *container) chunk(ctx context.Context, i int, follow bool, cut <-chan struct{}) (chunk, streamState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		select {
		case <-cut:
			return chunk{}, streamCut
		default:
		}
		if ctx.Err() != nil {
			return chunk{}, streamCancelled
		}
		if i < len(c.out) {
			return c.out[i], streamChunk
		}
		select {
		case <-c.done:
			return chunk{}, streamEnd
		default:
		}
		if !follow {
			return chunk{}, streamEnd
		}
		c.grown.Wait()
	}
}

// Instances implements runtime.Runtime.
func (f *Fake) Instances(_ context.Context, labels map[string]string) ([]runtime.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.up(); err != nil {
		return nil, err
	}
	var list []runtime.Instance
	for _, c := range f.boxes {
		if b := c.Named(); b.Has(labels) {
			list = append(list, b)
		}
	}
	return list, nil
}

// CopyOut implements runtime.Runtime.
func (f *Fake) CopyOut(_ context.Context, id, dir string) (io.ReadCloser, error) {
	c, _, err := f.get(id)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	found := false
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		if name != dir && !strings.HasPrefix(name, dir+"/") {
			continue
		}
		found = true
		content := c.files[name]
		if err := tw.WriteHeader(&tar.Header{
			Name: path.Base(dir) + strings.TrimPrefix(name, dir), Mode: 0o644, Size: int64(len(content)),
			Typeflag: tar.TypeReg,
		}); err != nil {
			return nil, err
		}
		if _, err := tw.Write(content); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, fmt.Errorf("copy %s: %w", dir, runtime.ErrNotFound)
	}
	return io.NopCloser(&b), tw.Close()
}

// CopyIn unpacks a tar stream into a directory of the box.
func (f *Fake) CopyIn(_ context.Context, id, dir string, tarball io.Reader) error {
	c, _, err := f.get(id)
	if err != nil {
		return err
	}
	tr := tar.NewReader(tarball)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.files[path.Join(dir, h.Name)] = content
		c.mu.Unlock()
	}
}

// ImageID makes up an id for an image that can be saved.
func (f *Fake) ImageID(_ context.Context, ref string) (string, error) {
	if _, ok := f.Images[ref]; !ok {
		return "", nil
	}
	return "sha256:" + ref, nil
}

// SaveImage streams an image.
func (f *Fake) SaveImage(_ context.Context, ref string) (io.ReadCloser, error) {
	b, ok := f.Images[ref]
	if !ok {
		return nil, fmt.Errorf("image %s: %w", ref, runtime.ErrNotFound)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// Stop implements runtime.Runtime.
func (f *Fake) Stop(ctx context.Context, id string, grace time.Duration) error {
	c, _, err := f.get(id)
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.stops = append(f.stops, grace)
	f.mu.Unlock()
	if grace > 0 {
		c.stopping.Do(func() { close(c.stop) })
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-c.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
	c.killing.Do(func() { close(c.kill) })
	<-c.done
	return nil
}

// Remove implements runtime.Runtime.
func (f *Fake) Remove(ctx context.Context, id string) error {
	if err := f.Stop(ctx, id, 0); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.boxes, id)
	return nil
}
