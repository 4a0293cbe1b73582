//go:build boxtest

package setupcache

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (w *world) maintainer() *Maintainer {
	return &Maintainer{Dir: w.volume, Log: slog.New(slog.DiscardHandler)}
}

type bufferCloser struct{ *bytes.Buffer }

func (bufferCloser) Close() error { return nil }

// export returns all snapshots of the volume as a stream.
func (w *world) export() (stream []byte, r workorder.CacheReport, err error) {
	w.t.Helper()
	var have workorder.CacheReport
	if err := w.maintainer().List(w.t.Context(), &have); err != nil {
		w.t.Fatal(err)
	}
	var ids []string
	for _, s := range have.Snapshots {
		ids = append(ids, s.ID)
	}
	var b bytes.Buffer
	err = w.maintainer().Export(w.t.Context(), &r, "export", ids, func(context.Context) (io.WriteCloser, error) { return bufferCloser{&b}, nil })
	return b.Bytes(), r, err
}

func (w *world) add(stream []byte, repo string) (r workorder.CacheReport) {
	w.t.Helper()
	if err := w.maintainer().Import(w.t.Context(), &r, "import", repo, bytes.NewReader(stream)); err != nil {
		w.t.Fatal(err)
	}
	left, err := os.ReadDir(w.path("runs"))
	if trash, terr := os.ReadDir(w.path("trash")); err != nil || terr != nil || len(left)+len(trash) > 0 {
		w.t.Errorf("left: %v %v, %v", left, trash, errors.Join(err, terr))
	}
	return r
}

// edit changes entries of a stream; nil leaves one out.
func edit(t *testing.T, stream []byte, change func(h *tar.Header, content []byte) []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for r := tar.NewReader(bytes.NewReader(stream)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		content, rerr := io.ReadAll(r)
		if err := errors.Join(err, rerr); err != nil {
			t.Fatal(err)
		}
		if content = change(h, content); content == nil {
			continue
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A snapshot is the same on another volume, with everything that an overlay keeps about deleted, replaced and moved files.
func TestMoved(t *testing.T) {
	w := newWorld(t)
	a := w.box("a")
	a.lay(want("k"))
	a.must("echo 1 >f && mkdir d && echo 2 >d/x && ln f hard && ln -s d link && echo idx >.git/index && chmod 751 d && echo home >$HOME/h && touch -d @1000.5 f && echo secret >.env", "")
	a.keep()
	if err := a.Attach("commit", []byte("result")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.mounts.unmountAll(), a.Close()); err != nil {
		t.Fatal(err)
	}
	// A second one above it hides files of the first, and moves a directory.
	b := w.box("b")
	b.lay(want("other"))
	b.must("rm $HOME/h && rm -r $HOME/image && mkdir $HOME/image && echo new >$HOME/image/n && cat $HOME/image/n", "new")
	b.keep()
	if err := errors.Join(b.mounts.unmountAll(), b.Close()); err != nil {
		t.Fatal(err)
	}
	stream, r, err := w.export()
	if err != nil || len(r.Moved) != 2 || len(r.Refused) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	again, _, err := w.export()
	if err != nil || !bytes.Equal(stream, again) {
		t.Errorf("the same snapshots give another stream: %v", err)
	}
	for _, text := range []string{"secret", "result", "commit"} {
		if bytes.Contains(stream, []byte(text)) {
			t.Errorf("%q is in the stream", text)
		}
	}
	for _, repo := range []string{"", "/other"} {
		w2 := newWorld(t)
		for range 2 {
			if r := w2.add(stream, repo); len(r.Moved) != 2 || len(r.Refused) != 0 {
				t.Fatalf("%+v", r)
			}
		}
		k, other := want("k"), want("other")
		if repo != "" {
			k.Project, other.Project = repo, repo
		}
		c := w2.box("c")
		c.lay(k)
		if fits, same := c.Matches(); !fits || !same {
			t.Fatal(fits, same)
		}
		if got := c.Attached("commit"); got != nil {
			t.Errorf("results of checks were moved: %s", got)
		}
		c.must("cat f d/x $HOME/h link/x && stat -c '%a %u %h' d f && stat -c %.1Y f && ls $HOME", "1\n2\nhome\n2\n751 4242 2\n644 4242 2\n1000.5\nh\nimage")
		d := w2.box("d")
		d.lay(other)
		if fits, _ := d.Matches(); !fits {
			t.Fatal("the second one is not there")
		}
		d.must("ls $HOME; ls $HOME/image", "image\nn")
	}
}

func TestImportRefuses(t *testing.T) {
	w := newWorld(t)
	a := w.box("a")
	a.lay(want("k"))
	a.must("echo 1 >f && mkdir d && echo 2 >d/x", "")
	a.keep()
	if err := errors.Join(a.mounts.unmountAll(), a.Close()); err != nil {
		t.Fatal(err)
	}
	stream, _, err := w.export()
	if err != nil {
		t.Fatal(err)
	}
	keep := func(_ *tar.Header, content []byte) []byte { return content }
	is := func(h *tar.Header, name string) bool { return strings.HasSuffix(h.Name, "/"+name) }
	for name, row := range map[string]struct {
		change func(h *tar.Header, content []byte) []byte
		cut    int
	}{
		"another content": {change: func(h *tar.Header, content []byte) []byte {
			if is(h, "f") {
				return []byte("2\n")
			}
			return content
		}},
		"another mode": {change: func(h *tar.Header, content []byte) []byte {
			if is(h, "f") {
				h.Mode = 0o4755
			}
			return content
		}},
		"a missing file": {change: func(h *tar.Header, content []byte) []byte {
			if is(h, "f") {
				return nil
			}
			return content
		}},
		"no description": {change: func(h *tar.Header, content []byte) []byte {
			if is(h, metaFile) {
				return nil
			}
			return content
		}},
		"no checksum": {change: func(h *tar.Header, content []byte) []byte {
			if is(h, sumFile) {
				return nil
			}
			return content
		}},
		"outside": {change: func(h *tar.Header, content []byte) []byte {
			if is(h, "f") {
				h.Name = strings.TrimSuffix(h.Name, "f") + "../../../../f"
			}
			return content
		}},
		"a link as directory": {change: func(h *tar.Header, content []byte) []byte {
			if is(h, "tree/") {
				h.Typeflag, h.Linkname, h.Name = tar.TypeSymlink, "/etc", strings.TrimSuffix(h.Name, "/")
			}
			return content
		}},
		"through a link": {change: func(h *tar.Header, content []byte) []byte {
			if is(h, "d/") {
				h.Typeflag, h.Linkname, h.Name = tar.TypeSymlink, "/etc", strings.TrimSuffix(h.Name, "/")
			}
			return content
		}},
		"a device": {change: func(h *tar.Header, content []byte) []byte {
			if is(h, "f") {
				h.Typeflag, h.Devmajor, h.Devminor = tar.TypeChar, 1, 3
				return []byte{}
			}
			return content
		}},
		"another name": {change: func(h *tar.Header, content []byte) []byte {
			_, rest, _ := strings.Cut(h.Name, "/")
			h.Name = ".././" + rest
			return content
		}},
		"half":            {change: keep, cut: len(stream) / 2},
		"between entries": {change: keep, cut: 1536},
	} {
		t.Run(name, func(t *testing.T) {
			w2 := newWorld(t)
			b := edit(t, stream, row.change)
			if row.cut > 0 {
				b = b[:row.cut]
			}
			r := w2.add(b, "")
			if len(r.Moved) != 0 || len(r.Refused) == 0 || slices.ContainsFunc(r.Refused, func(s workorder.CacheSnapshot) bool { return s.Problem == "" }) {
				t.Errorf("%+v", r)
			}
			if _, err := os.Lstat("/etc/x"); err == nil {
				t.Fatal("it is in /etc")
			}
			var have workorder.CacheReport
			if err := w2.maintainer().List(t.Context(), &have); err != nil || len(have.Snapshots) != 0 {
				t.Errorf("%+v, %v", have, err)
			}
			// The whole archive still fits afterwards.
			if r := w2.add(stream, ""); len(r.Moved) != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
	// A snapshot whose lower one is missing, and one of an older program.
	b := w.box("b")
	b.lay(want("other"))
	b.must("touch $HOME/b", "")
	b.keep()
	id := b.under.Layers["home"][0]
	if err := errors.Join(b.mounts.unmountAll(), b.Close()); err != nil {
		t.Fatal(err)
	}
	both, _, err := w.export()
	if err != nil {
		t.Fatal(err)
	}
	r := newWorld(t).add(edit(t, both, func(h *tar.Header, content []byte) []byte {
		if strings.HasPrefix(h.Name, id) {
			return nil
		}
		return content
	}), "")
	if len(r.Moved) != 0 || len(r.Refused) != 1 {
		t.Errorf("%+v", r)
	}
	var none workorder.CacheReport
	err = w.maintainer().Export(t.Context(), &none, "x", []string{"aaaaaaaaaaaa"}, func(context.Context) (io.WriteCloser, error) { return nil, errors.New("opened") })
	if err == nil || strings.Contains(err.Error(), "opened") {
		t.Error(err)
	}
}
