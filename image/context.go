package image

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// WriteContext writes the build context as a tar stream. The same source and host give the same bytes.
func (s *Source) WriteContext(w io.Writer, h Host) error {
	t := tar.NewWriter(w)
	add := func(name string, b []byte, mode int64) error {
		hdr := &tar.Header{Name: name, Mode: mode, Size: int64(len(b)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if strings.HasSuffix(name, "/") {
			hdr.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(hdr); err != nil {
			return fmt.Errorf("write build context %s: %w", name, err)
		}
		if _, err := t.Write(b); err != nil {
			return fmt.Errorf("write build context %s: %w", name, err)
		}
		return nil
	}
	if err := s.walk(add); err != nil {
		return err
	}
	if s.entrypoint != nil {
		program, err := s.entrypoint.Unpack()
		if err != nil {
			return err
		}
		if err := add("entrypoint/entrypoint", program, 0o755); err != nil {
			return err
		}
	}
	// The directory is there even when empty: COPY fails on a missing one.
	if err := add("host/ca/", nil, 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(h.CAs)) {
		if err := add("host/ca/"+path.Base(name), h.CAs[name], 0o644); err != nil {
			return err
		}
	}
	var npmrc string
	if h.Registry != "" {
		npmrc = "registry=" + h.Registry + "\n"
	}
	if err := add("host/npmrc", []byte(npmrc), 0o644); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("write build context: %w", err)
	}
	return nil
}
