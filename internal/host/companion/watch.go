package companion

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// appearTimeout bounds the box's creation. The CLI creates it right after the companion: a longer wait means that the CLI died.
	appearTimeout = 3 * time.Minute
	// orphanTimeout is appearTimeout if the CLI has died: the engine may still carry out its last request.
	orphanTimeout = 3 * time.Second
	engineGone    = 2 * time.Minute // longer than the CLI waits, so that a restart of the engine costs no push
	pollPause     = 200 * time.Millisecond
)

type watcher struct {
	boxes   runtime.Follower
	carrier ImageSender
	cfg     Config
	log     *slog.Logger
	last    int64
	at      time.Time
	jobs    sync.WaitGroup
}

// run returns when the box has ended or did not appear, or when the engine is gone for engineGone.
func (w *watcher) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer w.jobs.Wait()
	defer cancel()
	begun, down, orphan := time.Now(), time.Time{}, time.Time{}
	seen := false
	for {
		box, err := runtime.Find(ctx, w.boxes, w.cfg.TaskID)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if down.IsZero() {
				down = time.Now()
				w.log.Warn("engine does not answer", "error", err)
			}
			if time.Since(down) > engineGone {
				return fmt.Errorf("the engine has not answered for %s: %w", engineGone, err)
			}
		case box == nil && seen:
			return nil
		case box == nil || box.State == "created":
			down = time.Time{}
			if time.Since(begun) > appearTimeout {
				return fmt.Errorf("no sandbox has started for %s", appearTimeout)
			}
			if orphan.IsZero() && w.cfg.Parent != 0 && os.Getppid() != w.cfg.Parent {
				orphan = time.Now()
			}
			if !orphan.IsZero() && time.Since(orphan) > orphanTimeout {
				return errors.New("the command that was to start the sandbox has died")
			}
		case !box.Running():
			return nil
		default:
			seen, down = true, time.Time{}
			if err := w.follow(ctx, box.ID); err != nil && ctx.Err() == nil {
				w.log.Warn("follow the sandbox", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollPause):
		}
	}
}

// follow handles the box's image requests until its log ends.
func (w *watcher) follow(ctx context.Context, id string) error {
	lines := text.WholeLines(lineLimit, func(b []byte) {
		if len(w.cfg.Images) == 0 || !bytes.Contains(b, []byte(workorder.EventImageRequest)) {
			return
		}
		e, err := workorder.DecodeEvent(b)
		if err != nil || e.Type != workorder.EventImageRequest || e.Seq <= w.last {
			return
		}
		w.last, w.at = e.Seq, e.Time
		w.jobs.Go(func() { w.carrier.HandleRequest(ctx, id, e) })
	})
	return runtime.Follow(ctx, w.boxes, w.cfg.TaskID, runtime.LogOptions{Since: w.at, Stdout: lines})
}

// lineLimit bounds a parsed line, in bytes; a request has a few hundred.
const lineLimit = 64 << 10

// saveTimeout bounds one image, which may have gigabytes.
const saveTimeout = 15 * time.Minute

// ImageSender copies requested images of the engine into a box.
type ImageSender struct {
	Files  runtime.Copier
	Store  runtime.ImageStore // nil if the engine cannot save images
	Images []string           // the ones offered to the box
	Dir    string             // for temporary files
	Log    *slog.Logger
}

// HandleRequest copies the requested image into the box, or the reason of the failure.
func (s ImageSender) HandleRequest(ctx context.Context, id string, e workorder.Event) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	begun := time.Now()
	dir, name := path.Split(e.Path)
	if path.Clean(dir) != workorder.ImageInbox || name == "" || name != path.Base(e.Path) {
		s.Log.Warn("image request for a path outside of the inbox", "path", e.Path)
		return
	}
	err := s.deliver(ctx, id, e.Name, name)
	mark, text := name+".done", ""
	if err != nil {
		mark, text = name+".failed", err.Error()
	}
	err = errors.Join(err, s.Files.CopyIn(ctx, id, workorder.ImageInbox, bytes.NewReader(tarball(mark, []byte(text)))))
	s.Log.Info("image request", "image", e.Name, "ms", time.Since(begun).Milliseconds(), "error", err)
}

func (s ImageSender) deliver(ctx context.Context, id, ref, name string) error {
	// The box must not choose from the engine's other images.
	if !slices.Contains(s.Images, ref) {
		return fmt.Errorf("image %s was not offered to this sandbox", ref)
	}
	if s.Store == nil {
		return fmt.Errorf("save image %s: %w", ref, runtime.ErrUnsupported)
	}
	img, err := s.Store.SaveImage(ctx, ref)
	if err != nil {
		return err
	}
	defer img.Close()
	// The archive API needs the size first.
	f, err := os.CreateTemp(s.Dir, ".image-*")
	if err != nil {
		return fmt.Errorf("keep image %s: %w", ref, err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil { // the kernel frees the file when it is closed
		return fmt.Errorf("keep image %s: %w", filepath.Base(f.Name()), err)
	}
	size, err := io.Copy(f, img)
	if err != nil {
		return fmt.Errorf("save image %s: %w", ref, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	pr, pw := io.Pipe()
	go func() {
		tw := tar.NewWriter(pw)
		err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.Copy(tw, f)
		}
		pw.CloseWithError(errors.Join(err, tw.Close()))
	}()
	err = s.Files.CopyIn(ctx, id, workorder.ImageInbox, pr)
	pr.CloseWithError(io.ErrClosedPipe) // ends the writer if the engine stopped reading
	return err
}

func tarball(name string, content []byte) []byte {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	// Writing to a buffer never fails.
	_ = tw.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), Typeflag: tar.TypeReg})
	_, _ = tw.Write(content)
	_ = tw.Close()
	return b.Bytes()
}
