package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// handoverTimeout bounds the transfer of one image from the host, which may be gone.
	handoverTimeout = 5 * time.Minute
	// pullTimeout bounds a download, the slowest part of a start.
	pullTimeout   = 15 * time.Minute
	loadTimeout   = 10 * time.Minute
	inboxPause    = 20 * time.Millisecond
	progressPause = time.Second
	// maxReason bounds the host's explanation of a failure.
	maxReason = 4 << 10
)

// images gets images into the engine, each once.
type images struct {
	cfg Config
	mu  sync.Mutex
	all map[string]*sync.Mutex
	n   int
}

func newImages(cfg Config) *images { return &images{cfg: cfg, all: map[string]*sync.Mutex{}} }

// ensure makes the image present, from the engine, the host or a registry.
func (i *images) ensure(ctx context.Context, name string, tell func(state, text string)) error {
	i.mu.Lock()
	if i.all[name] == nil {
		i.all[name] = &sync.Mutex{}
	}
	one := i.all[name]
	i.mu.Unlock()
	one.Lock() // if two services use one image, the second finds it
	defer one.Unlock()

	offered := i.offered(name)
	present, err := i.present(ctx, name, offered)
	if err != nil || present {
		return err
	}
	if offered != "" {
		return i.fromHost(ctx, name, offered, tell)
	}
	return i.pull(ctx, name, tell)
}

// offered returns the name under which the host offers the image, "" if it does not.
func (i *images) offered(name string) string {
	want := normal(name)
	for h := range i.cfg.HostImages {
		if normal(h) == want {
			return h
		}
	}
	return ""
}

func normal(name string) string {
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name
	}
	return reference.TagNameOnly(ref).String()
}

// present reports whether the engine has the image, with the host's id if the host names one.
func (i *images) present(ctx context.Context, name, offered string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	in, err := i.cfg.Client.ImageInspect(ctx, name)
	switch {
	case errdefs.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for image %s: %w", name, err)
	}
	id := i.cfg.HostImages[offered]
	return offered == "" || id == "" || id == in.ID, nil
}

// fromHost requests the image from the host, waits for the archive and loads it.
func (i *images) fromHost(ctx context.Context, name, offered string, tell func(state, text string)) error {
	i.mu.Lock()
	i.n++
	path := filepath.Join(i.cfg.Inbox, fmt.Sprintf("%d.tar", i.n))
	i.mu.Unlock()
	if err := os.MkdirAll(i.cfg.Inbox, 0o700); err != nil {
		return fmt.Errorf("create image inbox: %w", err)
	}
	defer func() {
		for _, p := range []string{path, path + ".done", path + ".failed"} {
			_ = os.Remove(p) // the archive can be large; a leftover is removed with the box
		}
	}()
	tell("loading", "requesting from the host: "+name)
	i.cfg.Emit(workorder.Event{Type: workorder.EventImageRequest, Name: offered, Path: path})
	if err := waitInbox(ctx, path); err != nil {
		return fmt.Errorf("get image %s from the host: %w", name, err)
	}
	tell("loading", name)
	ctx, cancel := context.WithTimeoutCause(ctx, loadTimeout, fmt.Errorf("not loaded after %s", loadTimeout))
	defer cancel()
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("load image %s: %w", name, err)
	}
	defer f.Close()
	r, err := i.cfg.Client.ImageLoad(ctx, f)
	if err != nil {
		return fmt.Errorf("load image %s: %w", name, cause(ctx, err))
	}
	defer r.Body.Close()
	if err := messages(r.Body, func(string) {}); err != nil {
		return fmt.Errorf("load image %s: %w", name, cause(ctx, err))
	}
	if _, err := i.cfg.Client.ImageInspect(ctx, name); err != nil {
		return fmt.Errorf("load image %s: the host's archive does not contain it: %w", name, err)
	}
	return nil
}

// waitInbox waits for the marker that the host sets next to a complete archive.
func waitInbox(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, handoverTimeout,
		fmt.Errorf("the host did not deliver it in %s: is the CLI's companion process still running?", handoverTimeout))
	defer cancel()
	for {
		if _, err := os.Stat(path + ".done"); err == nil {
			return nil
		}
		if b, err := readSome(path+".failed", maxReason); err == nil {
			return fmt.Errorf("the host reports: %s", strings.TrimSpace(string(b)))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := pause(ctx, inboxPause); err != nil {
			return err
		}
	}
}

func readSome(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}

func (i *images) pull(ctx context.Context, name string, tell func(state, text string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pullTimeout, fmt.Errorf("not pulled after %s", pullTimeout))
	defer cancel()
	tell("pulling", name)
	ref := name
	if n, err := reference.ParseNormalizedNamed(name); err == nil {
		ref = reference.TagNameOnly(n).String() // without a tag the engine would pull every tag
	}
	r, err := i.cfg.Client.ImagePull(ctx, ref, image.PullOptions{})
	if err != nil {
		return notPulled(name, cause(ctx, err))
	}
	defer r.Close()
	var last time.Time
	err = messages(r, func(line string) {
		if time.Since(last) >= progressPause {
			last = time.Now()
			tell("pulling", line)
		}
	})
	if err != nil {
		return notPulled(name, cause(ctx, err))
	}
	return nil
}

func notPulled(name string, err error) error {
	return fmt.Errorf(
		"image %s is not here and cannot be pulled: %w: check the name, or pull it on the host first (docker pull %s); the sandbox then "+
			"takes it from there",
		name, err, name,
	)
}

// message is one line of the engine's progress stream.
type message struct {
	Status      string `json:"status"`
	ID          string `json:"id"`
	ErrorDetail *struct {
		Message string `json:"message"`
	} `json:"errorDetail"`
	Progress *struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
}

// messages reads the engine's progress stream to its end; an error in it is the result of the operation.
func messages(r io.Reader, tell func(line string)) error {
	dec := json.NewDecoder(r)
	for {
		var m message
		err := dec.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.ErrorDetail != nil:
			return errors.New(m.ErrorDetail.Message)
		case m.Status != "":
			line := m.Status
			if m.ID != "" {
				line = m.ID + ": " + line
			}
			if m.Progress != nil && m.Progress.Total > 0 {
				line += fmt.Sprintf(" %d of %d MB", m.Progress.Current/1e6, m.Progress.Total/1e6)
			}
			tell(line)
		}
	}
}

// Bring gets images into the engine as Up would, concurrently. It uses Client, Emit, Inbox and HostImages of the
// configuration. With an error, which names the others, it also returns the present images.
func Bring(ctx context.Context, cfg Config, names []string) (brought []string, err error) {
	img := newImages(cfg)
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			begin := time.Now()
			tell := func(status, said string) {
				cfg.Emit(workorder.Event{
					Type: workorder.EventService, Name: name, Status: status, Text: text.Prefix(said, workorder.MaxEventText),
					DurationMS: time.Since(begin).Milliseconds(),
				})
			}
			if errs[i] = img.ensure(ctx, name, tell); errs[i] != nil {
				tell(stateFailed, errs[i].Error())
				return
			}
			tell(stateReady, "")
		})
	}
	wg.Wait()
	for i, name := range names {
		if errs[i] == nil {
			brought = append(brought, name)
		}
	}
	return brought, errors.Join(errs...)
}

// Load loads an archive of images (from docker save) into an engine that has none, and returns their names.
func Load(ctx context.Context, c *client.Client, archive io.Reader, tell func(line string)) ([]string, error) {
	r, err := c.ImageLoad(ctx, archive)
	if err != nil {
		return nil, cause(ctx, err)
	}
	defer r.Body.Close()
	if err := messages(r.Body, tell); err != nil {
		return nil, cause(ctx, err)
	}
	// The engine's messages differ by version; the new images are the loaded ones.
	all, err := c.ImageList(ctx, image.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the loaded images: %w", err)
	}
	var names []string
	for _, i := range all {
		for _, n := range i.RepoTags {
			if !strings.HasPrefix(n, "<none>") {
				names = append(names, n)
			}
		}
	}
	if len(names) == 0 {
		return nil, errors.New("no image has a name: save images by name, not by id")
	}
	return names, nil
}
