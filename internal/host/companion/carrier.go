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
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// saveTimeout bounds one image: gigabytes on a slow disk.
const saveTimeout = 15 * time.Minute

// Carrier brings images that the engine has into a box that asks for them.
type Carrier struct {
	Files  runtime.Copier
	Store  runtime.ImageStore // nil if the engine cannot save images
	Images []string           // those that the box was offered
	Dir    string             // for what is under way
	Log    *slog.Logger
}

// Answer puts the image that an event of the box asks for into the box, or the reason why it cannot.
func (c Carrier) Answer(ctx context.Context, id string, e workorder.Event) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	begun := time.Now()
	dir, name := path.Split(e.Path)
	if path.Clean(dir) != workorder.ImageInbox || name == "" || name != path.Base(e.Path) {
		c.Log.Warn("image request for a place that is not the inbox", "path", e.Path)
		return
	}
	err := c.deliver(ctx, id, e.Name, name)
	mark, text := name+".done", ""
	if err != nil {
		mark, text = name+".failed", err.Error()
	}
	err = errors.Join(err, c.Files.CopyIn(ctx, id, workorder.ImageInbox, bytes.NewReader(tarball(mark, []byte(text)))))
	c.Log.Info("image request", "image", e.Name, "ms", time.Since(begun).Milliseconds(), "error", err)
}

func (c Carrier) deliver(ctx context.Context, id, ref, name string) error {
	// Only offered images: the box must not choose from the engine's store.
	if !slices.Contains(c.Images, ref) {
		return fmt.Errorf("image %s was not offered to this sandbox", ref)
	}
	if c.Store == nil {
		return fmt.Errorf("save image %s: %w", ref, runtime.ErrUnsupported)
	}
	img, err := c.Store.SaveImage(ctx, ref)
	if err != nil {
		return err
	}
	defer img.Close()
	// The archive API needs the size first, and saving an image does not tell it.
	f, err := os.CreateTemp(c.Dir, ".image-*")
	if err != nil {
		return fmt.Errorf("keep image %s: %w", ref, err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil { // so that no file stays, however this ends
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
	err = c.Files.CopyIn(ctx, id, workorder.ImageInbox, pr)
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
