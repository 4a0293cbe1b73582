package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/docker/docker/api/types/container"
)

// putFiles streams files of the host into a box before it starts.
func (e *api) putFiles(ctx context.Context, id string, files map[string]string) error {
	if len(files) == 0 {
		return nil
	}
	pr, pw := io.Pipe()
	go func() {
		tw := tar.NewWriter(pw)
		var err error
		for to, from := range files {
			err = errors.Join(err, addFile(tw, to, from))
		}
		pw.CloseWithError(errors.Join(err, tw.Close()))
	}()
	err := e.c.CopyToContainer(ctx, id, "/", pr, container.CopyToContainerOptions{})
	pr.CloseWithError(io.ErrClosedPipe) // end the writer if the engine stopped reading
	return e.wrap("copy into the sandbox", err)
}

func addFile(tw *tar.Writer, to, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(path.Clean(to), "/")
	// Only the file's own directory: its parents exist in every system.
	if err := tw.WriteHeader(&tar.Header{Name: path.Dir(name) + "/", Mode: 0o755, Typeflag: tar.TypeDir}); err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: st.Size(), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	if _, err := io.Copy(tw, f); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}
