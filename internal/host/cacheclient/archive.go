package cacheclient

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// An archive of setup caches is a compressed tar: the manifest, then what `docker save` writes of the images, below images/, then
// what the cache's container writes of the setup caches, below setup/.
const (
	manifestName = "sandbox-agent-cache.json"
	imagesPrefix = "images/"
	setupPrefix  = "setup/"
	// archiveFormat changes with the archive, or with the files of a setup cache.
	archiveFormat = 1
	maxManifest   = 16 << 20 // bytes
)

// Manifest describes an archive of setup caches.
type Manifest struct {
	Format    int                       `json:"format"`
	Arch      string                    `json:"arch"` // of the engine
	Images    []workorder.Image         `json:"images"`
	Snapshots []workorder.CacheSnapshot `json:"snapshots"`
}

// ErrArchive means that an archive is damaged, or not one of setup caches.
var ErrArchive = errors.New("damaged, or not an archive of `sandbox-agent cache export`")

// WriteArchive writes an archive. setup writes the setup caches as a tar stream.
func WriteArchive(w io.Writer, m Manifest, images io.Reader, setup func(io.Writer) error) error {
	m.Format = archiveFormat
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	out := tar.NewWriter(z)
	if err := out.WriteHeader(&tar.Header{Name: manifestName, Mode: 0o644, Size: int64(len(b)), ModTime: time.Now()}); err != nil {
		return err
	}
	if _, err := out.Write(b); err != nil {
		return err
	}
	if err := addTar(out, imagesPrefix, images); err != nil {
		return fmt.Errorf("write the images: %w", err)
	}
	pr, pw := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := setup(pw)
		pw.CloseWithError(err)
		written <- err
	}()
	err = addTar(out, setupPrefix, pr)
	if err == nil {
		_, err = io.Copy(io.Discard, pr) // the end of the stream
	}
	pr.CloseWithError(err)
	if serr := <-written; serr != nil {
		err = serr
	}
	if err != nil {
		return fmt.Errorf("write the setup caches: %w", err)
	}
	return errors.Join(out.Close(), z.Close())
}

// addTar adds the entries of a tar stream below a prefix.
func addTar(w *tar.Writer, prefix string, r io.Reader) error {
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			h.Name = prefix + h.Name
			err = copyEntry(w, h, tr)
		}
		if err != nil {
			return err
		}
	}
}

func copyEntry(w *tar.Writer, h *tar.Header, content io.Reader) error {
	h.Format = tar.FormatPAX
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

// Archive reads an archive once, from its start to its end.
type Archive struct {
	Manifest
	z    *gzip.Reader
	tar  *tar.Reader
	next *tar.Header
	err  error // why it cannot be read further; io.EOF at its end
}

// OpenArchive reads the manifest of an archive.
func OpenArchive(r io.Reader) (*Archive, error) {
	a := &Archive{}
	var err error
	if a.z, err = gzip.NewReader(r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	a.tar = tar.NewReader(a.z)
	a.advance()
	if a.err != nil || a.next.Name != manifestName {
		return nil, ErrArchive
	}
	b, err := io.ReadAll(io.LimitReader(a.tar, maxManifest))
	if err == nil {
		err = json.Unmarshal(b, &a.Manifest)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	if a.Format != archiveFormat {
		return nil, fmt.Errorf("it has format %d, and this program reads format %d: use the program's version that exported it",
			a.Format, archiveFormat)
	}
	a.advance()
	return a, nil
}

func (a *Archive) advance() { a.next, a.err = a.tar.Next() }

// ReadImages passes the images on as a docker archive.
func (a *Archive) ReadImages(do func(io.Reader) error) error { return a.section(imagesPrefix, do) }

// ReadSetup passes the setup caches on as a tar stream. The stream of a damaged archive ends early.
func (a *Archive) ReadSetup(do func(io.Reader) error) error { return a.section(setupPrefix, do) }

// SkipImages passes over the images.
func (a *Archive) SkipImages() error {
	return a.section(imagesPrefix, func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
}

// section calls do with the next entries below the prefix, as a tar stream. It returns the error of do, and that of the archive.
func (a *Archive) section(prefix string, do func(io.Reader) error) error {
	pr, pw := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		out := tar.NewWriter(pw)
		for a.err == nil && strings.HasPrefix(a.next.Name, prefix) {
			a.next.Name = strings.TrimPrefix(a.next.Name, prefix)
			if err := copyEntry(out, a.next, a.tar); err != nil {
				a.err = err
				break
			}
			a.advance()
		}
		if a.err == nil || errors.Is(a.err, io.EOF) {
			_ = out.Close() // an error is the reader's, who has returned
		}
		_ = pw.Close()
	}()
	err := do(pr)
	_ = pr.CloseWithError(io.ErrClosedPipe)
	<-written
	switch {
	case errors.Is(a.err, io.ErrClosedPipe): // do did not read to the end
		return err
	case a.err != nil && !errors.Is(a.err, io.EOF):
		return errors.Join(err, fmt.Errorf("%w: %w", ErrArchive, a.err))
	}
	return err
}

// Close checks the end of an archive that was read.
func (a *Archive) Close() error {
	if a.err == nil {
		return fmt.Errorf("%w: unexpected entry %q", ErrArchive, a.next.Name)
	}
	if !errors.Is(a.err, io.EOF) {
		return nil // reported
	}
	if _, err := io.Copy(io.Discard, a.z); err != nil {
		return fmt.Errorf("%w: %w", ErrArchive, err)
	}
	return nil
}
