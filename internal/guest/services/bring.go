package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Bring gets images into the engine as Up would, concurrently, and starts nothing. It uses Client, Emit,
// Inbox and HostImages of the configuration. It also returns the images that are present afterwards with an
// error, which names the others.
func Bring(ctx context.Context, cfg Config, names []string) (brought []string, err error) {
	img := newImages(cfg)
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			begin := time.Now()
			tell := func(status, said string) {
				cfg.Emit(workorder.Event{
					Type: workorder.EventService, Name: name, Status: status, Text: text.Begin(said, workorder.MaxEventText),
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

// Load loads an archive of images (from docker save, also compressed) into an engine that has none, and
// returns the names of its images.
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
