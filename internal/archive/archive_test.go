package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// look is what is below a folder: name, type, permissions, content or target.
func look(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch info.Mode().Type() {
		case 0:
			b, rerr := os.ReadFile(p)
			content, err = string(b), rerr
		case fs.ModeSymlink:
			content, err = os.Readlink(p)
		}
		all[strings.TrimPrefix(p, dir+"/")] = fmt.Sprintf("%s %s", info.Mode(), content)
		if info.Mode().Type() == fs.ModeSymlink {
			all[strings.TrimPrefix(p, dir+"/")] = "-> " + content
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// What is packed comes out as it was, whatever its names are.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	src := filepath.Join(from, "src")
	must(t,
		os.MkdirAll(filepath.Join(src, "a b/closed"), 0o755), os.Mkdir(filepath.Join(src, "empty"), 0o700),
		os.WriteFile(filepath.Join(src, "plain"), []byte("x"), 0o600), os.WriteFile(filepath.Join(src, "none"), nil, 0o444),
		os.WriteFile(filepath.Join(src, "a b", "new\nline"), []byte("y"), 0o755), os.WriteFile(filepath.Join(src, "a b", "é\xff"),
			[]byte("z"), 0o640),
		os.WriteFile(filepath.Join(src, "a b/closed", "-x"), bytes.Repeat([]byte("large"), 200_000), 0o644),
		os.WriteFile(filepath.Join(src, strings.Repeat("l", 255)), []byte("long"), 0o644), os.Chmod(filepath.Join(src, "a b/closed"), 0o555),
		os.Symlink("a b/closed", filepath.Join(src, "inner")), os.Symlink("/etc/passwd", filepath.Join(src, "a b", "outer")),
		os.Symlink("src", filepath.Join(from, "link")),
		syscall.Mkfifo(filepath.Join(src, "pipe"), 0o600),
	)
	want := look(t, src)
	delete(want, "pipe")
	for _, name := range []string{"src", "link", "src/."} { // a link is followed at the end
		var b bytes.Buffer
		packed, err := Pack(t.Context(), &b, filepath.Join(from, name), "top")
		if err != nil || packed.Files != 8 || packed.Bytes != 1_000_000+3+4 || packed.Left != 1 || packed.FirstLeft != "top/pipe" {
			t.Fatalf("%s: %+v, %v", name, packed, err)
		}
		to := t.TempDir()
		got, err := Unpack(to, bytes.NewReader(b.Bytes()), Options{Top: "new", Exact: true})
		packed.Left, packed.FirstLeft = 0, ""
		if err != nil || got != packed {
			t.Errorf("%+v, want %+v, %v", got, packed, err)
		}
		if got := look(t, filepath.Join(to, "new")); !maps.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		// Again over it, into what cannot be written to even by root's rules of modes.
		if _, err := Unpack(to, bytes.NewReader(b.Bytes()), Options{Top: "new", Exact: true}); err != nil && os.Geteuid() == 0 {
			t.Errorf("again: %v", err)
		}
		inside, err := Unpack(t.TempDir(), bytes.NewReader(b.Bytes()), Options{Inside: true})
		if err != nil || inside.Left != 1 || inside.FirstLeft != "top/a b/outer" || inside.Files != 7 {
			t.Errorf("links inside only: %+v, %v", inside, err)
		}
		must(t, os.Chmod(filepath.Join(to, "new", "a b/closed"), 0o755)) // for whoever is not root
	}
	var b bytes.Buffer
	if sum, err := Pack(t.Context(), &b, filepath.Join(src, "plain"), "one"); err != nil || sum.Files != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	to := t.TempDir()
	if _, err := Unpack(to, &b, Options{}); err != nil || !maps.Equal(look(t, to), map[string]string{"one": "-rw------- x"}) {
		t.Errorf("a single file: %q, %v", look(t, to), err)
	}
	must(t, os.Chmod(filepath.Join(src, "a b/closed"), 0o755))
}

func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := h.Gname // of no use otherwise
		h.Gname = ""
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Nothing that an archive has brings anything out of the folder.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Gname: "evil"}
	}
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	hard := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
	}
	dir := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755} }
	huge := archive(t, file("t/f"))
	copy(huge[124:], "77777777777\x00")
	sum := 256
	for i, c := range huge[:512] {
		if i < 148 || i >= 156 {
			sum += int(c)
		}
	}
	copy(huge[148:], fmt.Sprintf("%06o\x00 ", sum))
	for name, row := range map[string]struct {
		archive []byte
		want    error
		left    int64
	}{
		"up":                             {archive(t, file("../victim/f")), ErrOutsideRoot, 0},
		"up later":                       {archive(t, file("t/../../victim/f")), ErrOutsideRoot, 0},
		"absolute":                       {archive(t, file("/etc/sandbox-agent-evil")), ErrOutsideRoot, 0},
		"a file by a link":               {archive(t, link("t/l", "../../victim"), file("t/l/f")), nil, 1},
		"a file by a link inside":        {archive(t, dir("t"), dir("t/d"), link("t/l", "d"), file("t/l/f")), fs.ErrExist, 0},
		"a link that is absolute":        {archive(t, link("t/l", "/etc")), nil, 1},
		"a link to the folder itself":    {archive(t, dir("t"), link("t/l", ".")), nil, 0},
		"a link beside what is unpacked": {archive(t, dir("t"), link("t/l", "../x")), nil, 1},
		"a link as the whole":            {archive(t, link("t", "x")), nil, 1},
		"a link through a link":          {archive(t, dir("t/a/b"), link("t/a/b/up", "../.."), link("t/out", "a/b/up/../..")), nil, 1},
		"a hard link to outside":         {archive(t, hard("t/h", "../victim/secret")), ErrOutsideRoot, 0},
		"a hard link to a link":          {archive(t, dir("t/a/b"), link("t/a/b/up", "../.."), hard("t/h", "t/a/b/up")), ErrOutsideRoot, 0},
		"a device": {archive(t, tar.Header{Typeflag: tar.TypeChar, Name: "t/null", Devmajor: 1, Devminor: 3},
			tar.Header{Typeflag: tar.TypeFifo, Name: "t/p"}), nil, 2},
		"a folder over a file": {archive(t, file("t/f"), dir("t/f")), fs.ErrExist, 0},
		"a file over a folder": {archive(t, dir("t/f"), file("t/f")), fs.ErrExist, 0},
		"many":                 {archive(t, slices.Repeat([]tar.Header{dir("t")}, 101)...), ErrLimit, 0},
		"large": {
			archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "t/f", Gname: strings.Repeat("x", 1001)}),
			ErrLimit, 0,
		},
		"huge":       {huge, ErrLimit, 0},
		"no archive": {bytes.Repeat([]byte("noise"), 1000), ErrArchive, 0},
		"half an archive": {archive(t, tar.Header{
			Typeflag: tar.TypeReg, Name: "t/f",
			Gname: strings.Repeat("x", 900),
		})[:700], ErrArchive, 0},
		"much behind it": {append(archive(t, file("t/f")), make([]byte, 2<<20)...), ErrLimit, 0},
		"a long name":    {archive(t, file("t/"+strings.Repeat("n", 300))), syscall.ENAMETOOLONG, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			in, victim := filepath.Join(top, "in"), filepath.Join(top, "victim")
			must(t, os.Mkdir(in, 0o755), os.Mkdir(victim, 0o755), os.WriteFile(filepath.Join(victim, "secret"), []byte("s"), 0o644))
			sum, err := Unpack(in, bytes.NewReader(row.archive), Options{Inside: true, MaxFiles: 100, MaxBytes: 1000})
			if name == "a file over a folder" { // of whatever kind the system says
				if err == nil {
					t.Error("no error")
				}
			} else if !errors.Is(err, row.want) || sum.Left != row.left {
				t.Errorf("%+v, %v, want %v and %d left out", sum, err, row.want, row.left)
			}
			if got := look(t, victim); len(got) != 1 {
				t.Errorf("outside: %q", got)
			}
			for name, what := range look(t, in) {
				if strings.Contains(name, ".sandbox-agent-") {
					t.Errorf("left: %s %s", name, what)
				}
				if strings.HasPrefix(what, "-> ") {
					if at, err := filepath.EvalSymlinks(filepath.Join(in, name)); err != nil || !strings.HasPrefix(at, in+"/t") {
						t.Errorf("%s leads to %s, %v", name, at, err)
					}
				}
			}
			if _, err := os.Lstat("/etc/sandbox-agent-evil"); err == nil {
				t.Fatal("it is in /etc")
			}
		})
	}
	// Meta headers without an end are as little use.
	long := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("p/", 200) + "f", Format: tar.FormatPAX})
	r := &endless{part: long[:1024]}
	if _, err := Unpack(t.TempDir(), r, Options{MaxFiles: 10, MaxBytes: 1000}); !errors.Is(err, ErrLimit) {
		t.Errorf("endless meta headers: %v", err)
	}
}

type endless struct {
	part []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.part[e.at:])
	e.at = (e.at + n) % len(e.part)
	return n, nil
}

// A file that cannot be read costs that file; what is no file is not waited for.
func TestUnread(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.Symlink("pipe", filepath.Join(dir, "link")),
		os.Symlink("none", filepath.Join(dir, "dangling")))
	for name, want := range map[string]error{"pipe": ErrNotRegular, "link": ErrNotRegular, ".": ErrNotRegular, "dangling": fs.ErrNotExist} {
		if f, err := Open(filepath.Join(dir, name)); !errors.Is(err, want) {
			t.Errorf("%s: %v %v", name, f, err)
		}
	}
	if _, err := Pack(t.Context(), io.Discard, filepath.Join(dir, "link"), "t"); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a pipe packed: %v", err)
	}
	if os.Geteuid() == 0 {
		return // reads everything: the guest's tests have another user
	}
	must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0), os.WriteFile(filepath.Join(dir, "b"), nil, 0),
		os.WriteFile(filepath.Join(dir, "c"), nil, 0o600))
	sum, err := Pack(t.Context(), io.Discard, dir, "t")
	if u, ok := errors.AsType[*ReadError](err); !ok || u.Count != 2 || sum.Files != 3 {
		t.Errorf("%+v, %v", sum, err)
	}
}

func FuzzUnpack(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "t/"},
		{Typeflag: tar.TypeSymlink, Name: "t/l", Linkname: "../.."},
		{Typeflag: tar.TypeLink, Name: "t/h", Linkname: "t/l"},
		{Typeflag: tar.TypeReg, Name: "t/l/f"},
	} {
		_ = w.WriteHeader(&h)
	}
	_ = w.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, archive []byte) {
		top := t.TempDir()
		in := filepath.Join(top, "in")
		must(t, os.Mkdir(in, 0o755))
		_, _ = Unpack(in, bytes.NewReader(archive), Options{Inside: true, MaxFiles: 50, MaxBytes: 1 << 20})
		if got, err := os.ReadDir(top); err != nil || len(got) != 1 {
			t.Errorf("outside: %v, %v", got, err)
		}
		must(t, filepath.WalkDir(in, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type() == fs.ModeSymlink {
				if at, err := filepath.EvalSymlinks(p); err == nil && at != in && !strings.HasPrefix(at, in+"/") {
					t.Errorf("%s leads to %s", p, at)
				}
			}
			if d != nil && d.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		}))
	})
}
