package cacheclient_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/cacheclient"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// tarOf is a tar with these files: name, content.
func tarOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1])), PAXRecords: map[string]string{"SCHILY.xattr.user.x": "y\x00"}}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// list returns the entries of a tar, and the error at its end.
func list(r io.Reader) (names string, err error) {
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return names, err
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			return names, err
		}
		names += h.Name + "=" + string(b) + h.PAXRecords["SCHILY.xattr.user.x"] + " "
	}
}

func TestArchive(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	m := cacheclient.Manifest{Arch: "amd64", Images: []workorder.Image{{ID: "sha256:1", Name: "a:1"}}, Snapshots: []workorder.CacheSnapshot{{ID: "x"}}}
	noise := strings.Repeat("0123456789abcdef", 1<<12)
	err := cacheclient.WriteArchive(&b, m, bytes.NewReader(tarOf(t, "blobs/1", "image")), func(w io.Writer) error {
		_, err := w.Write(tarOf(t, "x/meta.json", "meta", "x/tree/f", noise, "x/sum", "sum"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte, skip bool) (images, setup string, err error) {
		a, err := cacheclient.OpenArchive(bytes.NewReader(b))
		if err != nil {
			return "", "", err
		}
		if a.Arch != "amd64" || a.Images[0].Name != "a:1" || a.Snapshots[0].ID != "x" {
			t.Errorf("%+v", a.Manifest)
		}
		if skip {
			err = a.SkipImages()
		} else {
			err = a.ReadImages(func(r io.Reader) (err error) { images, err = list(r); return err })
		}
		if err != nil {
			return images, "", err
		}
		err = a.ReadSetup(func(r io.Reader) error { setup, _ = list(r); return nil })
		return images, setup, errors.Join(err, a.Close())
	}
	for _, skip := range []bool{false, true} {
		images, setup, err := read(b.Bytes(), skip)
		if err != nil || setup != "x/meta.json=metay\x00 x/tree/f="+noise+"y\x00 x/sum=sumy\x00 " || (images != "blobs/1=imagey\x00 ") != skip {
			t.Errorf("%q, %.100q, %v", images, setup, err)
		}
	}
	// Damage at any byte of the archive is noticed.
	for i := 10; i < b.Len(); i += 13 {
		if _, _, err := read(b.Bytes()[:i], true); !errors.Is(err, cacheclient.ErrArchive) {
			t.Fatalf("the first %d bytes: %v", i, err)
		}
	}
	flipped := bytes.Clone(b.Bytes())
	flipped[len(flipped)-5] ^= 1 // the checksum
	if _, _, err := read(flipped, true); !errors.Is(err, cacheclient.ErrArchive) {
		t.Error(err)
	}
	// A reader that stops early.
	a, err := cacheclient.OpenArchive(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	if err := a.ReadImages(func(io.Reader) error { return stop }); !errors.Is(err, stop) || errors.Is(err, cacheclient.ErrArchive) {
		t.Error(err)
	}
}

func TestNotAnArchive(t *testing.T) {
	t.Parallel()
	packed := func(b []byte) []byte {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		if _, err := w.Write(b); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return z.Bytes()
	}
	for name, b := range map[string][]byte{
		"text":              []byte("no archive"),
		"tar":               tarOf(t, "sandbox-agent-cache.json", "{}"),
		"another tar":       packed(tarOf(t, "manifest.json", "[]")),
		"an empty tar":      packed(tarOf(t)),
		"no JSON":           packed(tarOf(t, "sandbox-agent-cache.json", "{")),
		"an earlier format": packed(tarOf(t, "sandbox-agent-cache.json", `{"format": 0}`)),
	} {
		if _, err := cacheclient.OpenArchive(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// An error of the setup caches' source ends the export.
	failed := errors.New("failed")
	err := cacheclient.WriteArchive(io.Discard, cacheclient.Manifest{}, bytes.NewReader(tarOf(t)), func(w io.Writer) error {
		_, err := w.Write(tarOf(t, "a", "b")[:700])
		return errors.Join(err, failed)
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
}
