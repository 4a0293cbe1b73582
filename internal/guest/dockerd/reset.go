package dockerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/docker/docker/api/types/filters"
)

const (
	// renewTime bounds a renewal, which takes half a second and a start.
	renewTime = time.Minute
	// endTime bounds how long a daemon may take to end before it is killed.
	endTime = 10 * time.Second
)

// imageStore lists the images of a data root and their names at one time.
type imageStore struct {
	names  map[string][]byte   // by file: repositories.json
	images map[string][]string // by directory: the ids in it
}

// RecordImages records the current images, which Reset keeps. Call it before code of the task can reach the engine;
// Start calls it if the engine is not started yet.
func (e *Engine) RecordImages() error {
	s, err := readImages(e.cfg.DataRoot)
	if err != nil {
		return fmt.Errorf("remember the images of the inner engine: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remembered = s
	return nil
}

// Reset returns the engine to its state before code of the task used it: without containers, networks, volumes and
// build caches, with the recorded images. Clients wait meanwhile. It reports whether the engine had been started.
func (e *Engine) Reset(ctx context.Context) (renewed bool, err error) {
	if e.Info().Version == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, renewTime, fmt.Errorf("it took longer than %s", renewTime))
	defer cancel()
	e.renewing.Lock()
	defer e.renewing.Unlock()
	if err := e.reset(ctx); err != nil {
		err = fmt.Errorf("renew the inner engine: %w", err)
		e.finish(err) // a half-renewed engine is unusable: waiting clients get the error
		return true, err
	}
	return true, nil
}

func (e *Engine) reset(ctx context.Context) error {
	if err := e.haltedErr(); err != nil {
		return err
	}
	// Through the daemon, so that no mount of a container and no bridge remains.
	if err := e.RemoveContainers(ctx, nil); err != nil {
		return err
	}
	if _, err := e.cli.NetworksPrune(ctx, filters.Args{}); err != nil {
		return fmt.Errorf("remove networks: %w", err)
	}
	e.mu.Lock()
	d, s := e.daemons, e.remembered
	e.mu.Unlock()
	if err := e.endAll(ctx, d.dockerd, d.containerd); err != nil {
		return err
	}
	// The daemon's files are restored directly, without relying on the daemon's list of its own images.
	if err := s.restore(e.cfg.DataRoot); err != nil {
		return err
	}
	empty, err := scrub(e.cfg.DataRoot, false)
	if err != nil {
		return err
	}
	if err := errors.Join(empty(), dropBuilds(e.cfg.DataRoot)); err != nil {
		return err
	}
	if err := e.startContainerd(ctx); err != nil {
		return err
	}
	return e.startDockerd(ctx)
}

// endAll ends the daemons and then the processes they lost track of, which would use the next side's resources.
func (e *Engine) endAll(ctx context.Context, daemons ...*daemon) error {
	for _, d := range daemons {
		end, cancel := context.WithTimeout(ctx, endTime)
		d.end(end)
		cancel()
		select {
		case <-d.p.Done():
		case <-ctx.Done():
			return fmt.Errorf("%s does not end: %w", d.name, context.Cause(ctx))
		}
	}
	if e.cfg.Sweep == nil {
		return nil
	}
	if err := e.cfg.Sweep(); err != nil {
		return fmt.Errorf("kill remaining container processes: %w", err)
	}
	return nil
}

// dropBuilds removes build caches, because later builds reuse their steps' results.
func dropBuilds(root string) error {
	own, err := filepath.Glob(filepath.Join(root, "buildkit"))
	remapped, rerr := filepath.Glob(filepath.Join(root, "*", "buildkit"))
	err = errors.Join(err, rerr)
	for _, dir := range append(own, remapped...) {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// stores returns the image store directories of a data root.
func stores(root string) ([]string, error) {
	own, err := filepath.Glob(filepath.Join(root, "image", "*"))
	if err != nil {
		return nil, err
	}
	remapped, err := filepath.Glob(filepath.Join(root, "*", "image", "*"))
	return append(own, remapped...), err
}

const namesFile = "repositories.json"

// idDirs are the directories of a store with a file or directory per image.
var idDirs = []string{"imagedb/content/sha256", "imagedb/metadata/sha256"}

func readImages(root string) (*imageStore, error) {
	s := &imageStore{names: map[string][]byte{}, images: map[string][]string{}}
	dirs, err := stores(root)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, namesFile))
		if errors.Is(err, fs.ErrNotExist) {
			b, err = []byte(`{"Repositories":{}}`), nil
		}
		if err != nil {
			return nil, err
		}
		s.names[filepath.Join(dir, namesFile)] = b
		for _, f := range idDirs {
			entries, err := os.ReadDir(filepath.Join(dir, f))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			ids := []string{}
			for _, e := range entries {
				ids = append(ids, e.Name())
			}
			s.images[filepath.Join(dir, f)] = ids
		}
	}
	return s, nil
}

// restore returns the stores of a data root to the recorded state. The daemon must not run.
func (s *imageStore) restore(root string) error {
	if s == nil {
		return errors.New("its images were not remembered")
	}
	dirs, err := stores(root)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		names, known := s.names[filepath.Join(dir, namesFile)]
		if !known {
			err = os.RemoveAll(dir) // there was none before
		} else {
			err = os.WriteFile(filepath.Join(dir, namesFile), names, 0o600)
		}
		for _, f := range idDirs {
			if known && err == nil {
				err = keepOnly(filepath.Join(dir, f), s.images[filepath.Join(dir, f)])
			}
		}
		if err != nil {
			return fmt.Errorf("restore images: %w", err)
		}
	}
	return nil
}

// keepOnly removes all entries of a directory except names.
func keepOnly(dir string, names []string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
