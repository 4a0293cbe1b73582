package sandbox

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// look is what is below a folder.
func look(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		what := strings.TrimPrefix(p, dir+"/")
		switch d.Type() {
		case 0:
			b, rerr := os.ReadFile(p)
			what, err = what+"="+string(b), rerr
		case fs.ModeSymlink:
			to, rerr := os.Readlink(p)
			what, err = what+"->"+to, rerr
		default:
			what += "/"
		}
		all = append(all, what)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Copies go where those of cp -r go, in both directions.
func TestCopy(t *testing.T) {
	t.Parallel()
	sb, _ := newHere(t)
	f := sb.Files()
	source := t.TempDir()
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(source, "src/d"), 0o755), os.WriteFile(filepath.Join(source, "src/d/f"), []byte("in"), 0o600),
		os.WriteFile(filepath.Join(source, "file"), []byte("f"), 0o755),
		os.Symlink("d", filepath.Join(source, "src/l")), os.Symlink("file", filepath.Join(source, "link")))
	for name, row := range map[string]struct {
		from, to string
		want     []string
		err      error
	}{
		"a file to a new name":           {"file", "new", []string{"new=f"}, nil},
		"a file into a folder":           {"file", "there", []string{"there/file=f"}, nil},
		"a file into a folder, said so":  {"file", "there/", []string{"there/file=f"}, nil},
		"a file over a file":             {"file", "old", []string{"old=f"}, nil},
		"a file over a link's file":      {"file", "toold", []string{"old=f"}, nil},
		"a link's file":                  {"link", "new", []string{"new=f"}, nil},
		"a file into no folder":          {"file", "none/", nil, ErrNotFound},
		"a file into none's":             {"file", "none/new", nil, ErrNotFound},
		"a file below a file":            {"file", "old/new", nil, ErrFileType},
		"a folder to a new name":         {"src", "new", []string{"new/", "new/d/", "new/d/f=in", "new/l->d"}, nil},
		"a folder to a new name, said":   {"src/", "new/", []string{"new/", "new/d/", "new/d/f=in", "new/l->d"}, nil},
		"a folder into a folder":         {"src", "there", []string{"there/src/", "there/src/d/", "there/src/d/f=in", "there/src/l->d"}, nil},
		"a folder's content":             {"src/.", "there", []string{"there/d/", "there/d/f=in", "there/l->d"}, nil},
		"a folder's content to new name": {"src/.", "new", []string{"new/", "new/d/", "new/d/f=in", "new/l->d"}, nil},
		"a folder over a file":           {"src", "old", nil, ErrFileType},
		"a folder into none's":           {"src", "none/new", nil, ErrNotFound},
		"a folder whose name is a file":  {"src", "has", nil, ErrExists},
		"nothing":                        {"none", "new", nil, ErrNotFound},
		"something over a device":        {"file", "/dev/null", nil, ErrFileType},
	} {
		for _, out := range []bool{false, true} {
			dir := t.TempDir()
			must(os.Mkdir(filepath.Join(dir, "there"), 0o755), os.WriteFile(filepath.Join(dir, "old"), nil, 0o644),
				os.Mkdir(filepath.Join(dir, "has"), 0o755), os.WriteFile(filepath.Join(dir, "has/src"), nil, 0o644),
				os.Symlink("old", filepath.Join(dir, "toold")))
			before := look(t, dir)
			from, to := source+"/"+row.from, dir+"/"+row.to
			if row.to[0] == '/' {
				to = row.to
			}
			way := f.CopyIn
			if out {
				way = f.CopyOut
			}
			sum, err := way(t.Context(), from, to)
			if !errors.Is(err, row.err) {
				t.Errorf("%s, out %t: %v, want %v", name, out, err, row.err)
			}
			got := look(t, dir)
			for _, what := range row.want {
				if !slices.Contains(got, what) {
					t.Errorf("%s, out %t: no %s in %q", name, out, what, got)
				}
			}
			if row.err != nil && !slices.Equal(got, before) {
				t.Errorf("%s, out %t: %q was made of %q", name, out, got, before)
			}
			if row.err == nil && (sum.Files != 1 && sum.Files != 2 || sum.Bytes != 1 && sum.Bytes != 2 || sum.Skipped != 0) {
				t.Errorf("%s, out %t: %+v", name, out, sum)
			}
		}
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode().IsRegular() {
		t.Errorf("/dev/null: %v, %v", info, err)
	}
	dir := t.TempDir()
	must(os.Symlink("/etc/passwd", filepath.Join(source, "src/out")))
	if sum, err := f.CopyOut(t.Context(), source+"/src", dir); err != nil || sum.Skipped != 1 || sum.FirstSkipped != "src/out" {
		t.Errorf("a link that leads out: %+v, %v", sum, err)
	}
	if sum, err := f.CopyIn(t.Context(), source+"/src", dir); err != nil || sum.Skipped != 0 || !slices.Contains(look(t, dir),
		"src/out->/etc/passwd") {
		t.Errorf("a link that leads out: %+v, %v", sum, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "src/d/f")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("permissions: %v, %v", info, err)
	}
}

// What files say is of this package, and the connection is made anew between two of them.
func TestFiles(t *testing.T) {
	t.Parallel()
	sb, h := newHere(t)
	f := sb.Files()
	ctx := t.Context()
	dir := t.TempDir()
	mode := fs.FileMode(0o750) | fs.ModeSticky
	for _, err := range []error{
		f.Mkdir(ctx, dir+"/a/b", WriteOptions{Mode: &mode, Parents: true}),
		f.Write(ctx, dir+"/a/b/c", strings.NewReader("content"), WriteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
		h.cut()
	}
	if i, err := f.Stat(ctx, dir+"/a/b"); err != nil || i.Mode != mode|fs.ModeDir || i.Name != "b" {
		t.Errorf("%+v, %v", i, err)
	}
	r, err := f.Open(ctx, dir+"/a/b/c")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
	h.cut()
	var b bytes.Buffer
	if err := errors.Join(r.Close(), f.TarOut(ctx, dir+"/a", &b), f.Mkdir(ctx, dir+"/t", WriteOptions{}), f.TarIn(ctx, dir+"/t",
		&b)); err != nil {
		t.Error(err)
	}
	if list, err := f.List(ctx, dir+"/t/a/b"); err != nil || len(list) != 1 || list[0].Name != "c" || list[0].Size != 7 {
		t.Errorf("%+v, %v", list, err)
	}
	w, err := f.Watch(ctx, dir, WatchOptions{Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.RemoveAll(ctx, dir+"/t"); err != nil {
		t.Error(err)
	}
	for c := (Change{}); c != (Change{ChangeRemoved, "t", true}); {
		if c, err = w.Next(); err != nil {
			t.Fatal(err)
		}
	}
	h.cut()
	if _, err := w.Next(); err == nil {
		t.Error("a lost watch goes on")
	} else if !errors.Is(err, ErrConnectionLost) {
		t.Errorf("a lost watch: %v", err)
	}
	for want, err := range map[error]error{
		ErrNotFound: f.Remove(ctx, dir+"/none"), ErrExists: f.Remove(ctx, dir+"/a"), ErrFileType: f.Write(ctx, dir, strings.NewReader(""),
			WriteOptions{}), ErrInvalidSpec: f.RemoveAll(ctx, "/"),
	} {
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// What a sandbox sends for a copy is written nowhere else.
func TestHostileCopy(t *testing.T) {
	t.Parallel()
	archive := func(headers ...tar.Header) (b []byte) {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, h := range headers {
			h.Mode = 0o755
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		return buf.Bytes()
	}
	folder := tar.Header{Typeflag: tar.TypeDir, Name: "x/"}
	huge := archive(tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: MaxCopyBytes + 1})
	whole, err := wire.TransferSummary{}.Trailer()
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		archive []byte
		trailer string
		want    error
		fine    bool
	}{
		"up":       {archive(tar.Header{Typeflag: tar.TypeReg, Name: "x/../../evil"}), whole, nil, false},
		"absolute": {archive(tar.Header{Typeflag: tar.TypeReg, Name: "/evil"}), whole, nil, false},
		"a link beside": {archive(folder, tar.Header{Typeflag: tar.TypeSymlink, Name: "x/l", Linkname: "../beside"},
			tar.Header{Typeflag: tar.TypeReg, Name: "x/l/evil"}), whole, nil, true},
		"a link to the home":      {archive(tar.Header{Typeflag: tar.TypeSymlink, Name: "x", Linkname: "/root"}), whole, nil, true},
		"more than may be":        {huge, whole, ErrTooLarge, false},
		"cut":                     {archive(folder), "", ErrConnectionLost, false},
		"cut in a file":           {append(archive(tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 1000}), "half"...), "", ErrConnectionLost, false},
		"half of one, well ended": {append(archive(tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 1000}), "half"...), whole, nil, false},
		"noise":                   {bytes.Repeat([]byte("noise"), 1000), whole, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			mux.HandleFunc(wire.PathHello, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"version":1}`) })
			mux.HandleFunc(wire.PathFilesInfo, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"name":"x","type":"folder"}`)
			})
			mux.HandleFunc(wire.PathFilesTar, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", wire.TrailerEnd)
				_, _ = w.Write(row.archive)
				if row.trailer != "" {
					w.Header().Set(wire.TrailerEnd, row.trailer)
				}
			})
			sb := ofHandler(t, mux)
			top := t.TempDir()
			for _, d := range []string{"in", "in/beside"} {
				if err := os.Mkdir(filepath.Join(top, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			_, err := sb.Files().CopyOut(t.Context(), "/x", filepath.Join(top, "in"))
			if (err == nil) != row.fine || row.want != nil && !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
			for _, what := range look(t, top) {
				if strings.Contains(what, "beside/") && what != "in/beside/" || strings.Contains(what, "evil") && !strings.HasPrefix(what,
					"in/x/l/") || strings.Contains(what, "->") || strings.Contains(what, ".sandbox-agent") {
					t.Errorf("there is %s", what)
				}
			}
		})
	}
}

// ofHandler is a sandbox whose guest is a handler.
func ofHandler(t *testing.T, guest http.Handler) *Sandbox {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // a socket's path is short, a test's folder is not
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &here{socket: filepath.Join(dir, "s")}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: guest, Protocols: protocols}
	go func() { _ = s.Serve(l) }()
	sb := &Sandbox{&instance{c: &creator{}, r: h, id: "x", spec: Spec{Name: "hostile", Lifetime: LifetimeNamed}}}
	t.Cleanup(func() {
		if err := errors.Join(sb.Close(), s.Close()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	return sb
}
