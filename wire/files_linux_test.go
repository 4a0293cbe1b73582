package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wireserver"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// theUser is another user than the one of the tests, if that one is root.
const theUser = 54321

// newFiles is a client of a guest, and the folder of its user's.
func newFiles(t *testing.T) (*wireclient.Client, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "files") //nolint:usetesting // a test's folder is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c := newGuest(t, func(c *wireserver.Config) {
		c.Dir = dir
		if os.Geteuid() == 0 {
			c.User = &supervise.User{UID: theUser, GID: theUser}
			must(t, os.Chmod(dir, 0o755), os.Chown(dir, theUser, theUser))
		}
	}).client(t)
	return c, dir
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func code(err error) wire.Code {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Code
	}
	return ""
}

func at(path string) wireclient.FileQuery { return wireclient.FileQuery{Path: path} }

func content(t *testing.T, c *wireclient.Client, path string) (string, error) {
	t.Helper()
	f, err := c.Files().Open(t.Context(), at(path))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

func write(t *testing.T, c *wireclient.Client, q wireclient.FileQuery, what string) {
	t.Helper()
	if err := c.Files().Write(t.Context(), q, strings.NewReader(what)); err != nil {
		t.Fatalf("write %s: %v", q.Path, err)
	}
}

func TestFileContents(t *testing.T) {
	t.Parallel()
	c, dir := newFiles(t)
	large := strings.Repeat("0123456789abcdef", 1<<19) // larger than all windows of the wire
	for _, name := range []string{"plain", "with space", "new\nline", "é", "-x", "\xff\x01", "%2e%2e?a=b&path=x", strings.Repeat("l", 255)} {
		for _, what := range []string{"", "x\n", large[:1<<20+1]} {
			write(t, c, at(name), what)
			if got, err := content(t, c, dir+"/"+name); err != nil || got != what {
				t.Errorf("%q: %d bytes of %d, %v", name, len(got), len(what), err)
			}
		}
	}
	write(t, c, at("large"), large)
	if got, err := content(t, c, "large"); err != nil || got != large {
		t.Errorf("%d bytes of %d, %v", len(got), len(large), err)
	}
	perm := func(name string) fs.FileMode {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			return 0
		}
		if st := info.Sys().(*syscall.Stat_t); os.Geteuid() == 0 && st.Uid != theUser && name != "link" { // which is the test's
			t.Errorf("%s belongs to %d", name, st.Uid)
		}
		return info.Mode()
	}
	mode := uint32(0o4751)
	must(t, os.Chmod(filepath.Join(dir, "plain"), 0o640), os.Symlink("plain", filepath.Join(dir, "link")),
		os.Symlink("fresh", filepath.Join(dir, "dangling")), os.Symlink("loop", filepath.Join(dir, "loop")))
	write(t, c, at("link"), "through")
	write(t, c, at("dangling"), "made")
	write(t, c, wireclient.FileQuery{Path: "é", Mode: &mode}, "given")
	write(t, c, wireclient.FileQuery{Path: "a/b/c", Parents: true}, "parents")
	for name, want := range map[string]fs.FileMode{
		"plain": 0o640, "link": fs.ModeSymlink | 0o777, "fresh": 0o644,
		"é": fs.ModeSetuid | 0o751, "a/b/c": 0o644, "a/b": fs.ModeDir | 0o755,
	} {
		if got := perm(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got, _ := content(t, c, "plain"); got != "through" {
		t.Errorf("through a link: %q", got)
	}
	// What fails in the middle leaves the old one, and nothing else.
	before, err := os.ReadDir(dir)
	must(t, err)
	broken := errors.New("broken")
	if err := c.Files().Write(t.Context(), at("plain"), io.MultiReader(strings.NewReader(large), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("a source that breaks: %v", err)
	}
	if got, _ := content(t, c, "plain"); got != "through" {
		t.Errorf("after a write that failed: %d bytes", len(got))
	}
	for { // the guest notices in its own time; go test's own deadline ends it
		after, err := os.ReadDir(dir)
		must(t, err)
		if len(after) == len(before) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666), os.Chmod(filepath.Join(dir, "pipe"), 0o666))
	for name, row := range map[string]struct{ read, write wire.Code }{
		"none":                   {wire.CodeNotFound, ""},
		"no/where":               {wire.CodeNotFound, wire.CodeNotFound},
		"a":                      {wire.CodeFileType, wire.CodeFileType},
		".":                      {wire.CodeFileType, wire.CodeFileType},
		"/":                      {wire.CodeFileType, wire.CodeFileType},
		"plain/x":                {wire.CodeFileType, wire.CodeFileType},
		"plain/":                 {wire.CodeFileType, wire.CodeFileType},
		"pipe":                   {wire.CodeFileType, wire.CodeFileType},
		"/dev/tty":               {wire.CodeFileType, wire.CodeFileType},
		"loop":                   {wire.CodeBadRequest, wire.CodeBadRequest},
		"":                       {wire.CodeBadRequest, wire.CodeBadRequest},
		"a\x00b":                 {wire.CodeBadRequest, wire.CodeBadRequest},
		strings.Repeat("n", 256): {wire.CodeBadRequest, wire.CodeBadRequest},
	} {
		if _, err := content(t, c, name); code(err) != row.read {
			t.Errorf("read %q: %v, want %s", name, err, row.read)
		}
		if err := c.Files().Write(t.Context(), at(name), strings.NewReader(large)); code(err) != row.write || (row.write == "") != (err == nil) {
			t.Errorf("write %q: %v, want %s", name, err, row.write)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestFolders(t *testing.T) {
	t.Parallel()
	c, dir := newFiles(t)
	ctx := t.Context()
	mode := uint32(0o700)
	must(t, c.Files().MakeDir(ctx, at("a")), c.Files().MakeDir(ctx, wireclient.FileQuery{Path: "p/q/r/", Parents: true, Mode: &mode}),
		c.Files().MakeDir(ctx, wireclient.FileQuery{Path: "p/q/r", Parents: true}))
	write(t, c, at("a/f"), "1234")
	must(t, os.Symlink("f", filepath.Join(dir, "a/l")))
	for name, err := range map[string]error{
		string(wire.CodeExists) + " there already":    c.Files().MakeDir(ctx, at("a")),
		string(wire.CodeExists) + " a file":           c.Files().MakeDir(ctx, wireclient.FileQuery{Path: "a/f", Parents: true}),
		string(wire.CodeNotFound) + " no parent":      c.Files().MakeDir(ctx, at("x/y")),
		string(wire.CodeExists) + " not empty":        c.Files().Remove(ctx, at("a")),
		string(wire.CodeNotFound) + " nothing":        c.Files().Remove(ctx, at("none")),
		string(wire.CodeNotFound) + " nothing below":  c.Files().Remove(ctx, wireclient.FileQuery{Path: "none", All: true}),
		string(wire.CodeBadRequest) + " everything":   c.Files().Remove(ctx, wireclient.FileQuery{Path: "/", All: true}),
		string(wire.CodeBadRequest) + " itself":       c.Files().Remove(ctx, wireclient.FileQuery{Path: "a/.", All: true}),
		string(wire.CodeBadRequest) + " a wrong mode": c.Files().MakeDir(ctx, wireclient.FileQuery{Path: "m", Mode: new(uint32(0o10000))}),
	} {
		if want, _, _ := strings.Cut(name, " "); string(code(err)) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, row := range []struct {
		q    wireclient.FileQuery
		want wire.FileInfo
	}{
		{at("a/f"), wire.FileInfo{Name: "f", Type: wire.TypeFile, Mode: 0o644, Size: 4}},
		{at("a/l"), wire.FileInfo{Name: "l", Type: wire.TypeFile, Mode: 0o644, Size: 4}},
		{wireclient.FileQuery{Path: "a/l", Link: true}, wire.FileInfo{Name: "l", Type: wire.TypeLink, Mode: 0o777, Size: 1, Target: "f"}},
		{at("/"), wire.FileInfo{Name: "/", Type: wire.TypeDir}},
		{at("/dev/null"), wire.FileInfo{Name: "null", Type: wire.TypeOther}},
		{at("p/q/r"), wire.FileInfo{Name: "r", Type: wire.TypeDir, Mode: 0o700}},
	} {
		got, err := c.Files().Info(ctx, row.q)
		if row.want.Type == wire.TypeDir || row.want.Type == wire.TypeOther { // what they say else is the system's
			got.Size = 0
			if row.want.Mode == 0 {
				got.Mode = 0
			}
		}
		if got.Modified.IsZero() {
			t.Errorf("%s has no time", row.q.Path)
		}
		got.Modified, got.UID, got.GID = time.Time{}, 0, 0
		if err != nil || got != row.want {
			t.Errorf("%s: %+v, %v, want %+v", row.q.Path, got, err, row.want)
		}
	}
	must(t, c.Files().Remove(ctx, at("a/l")), c.Files().Remove(ctx, wireclient.FileQuery{Path: "a", All: true}), c.Files().Remove(ctx, at("p/q/r")))

	// A list of any length, with names of any bytes, comes in order.
	want := []string{"\xff", "new\nline", strings.Repeat("\x01", 255)}
	for i := range 2 * wire.MaxList {
		want = append(want, fmt.Sprintf("%d\x01\x02\x03", i))
	}
	for _, n := range want {
		must(t, os.WriteFile(filepath.Join(dir, "p", n), nil, 0o600))
	}
	want = append(want, "q")
	slices.Sort(want)
	all, err := c.Files().List(ctx, at("p"), len(want))
	var got []string
	for _, i := range all {
		got = append(got, string(i.Name))
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d names of %d, %v", len(got), len(want), err)
	}
	if _, err := c.Files().List(ctx, at("p"), len(want)-1); !errors.Is(err, wireclient.ErrTooManyEntries) {
		t.Errorf("more than asked for: %v", err)
	}
	if _, err := c.Files().List(ctx, at("p/q/none"), 1); code(err) != wire.CodeNotFound {
		t.Errorf("list nothing: %v", err)
	}
	if _, err := c.Files().List(ctx, at("/etc/passwd"), 1); code(err) != wire.CodeFileType {
		t.Errorf("list a file: %v", err)
	}
}

// What the sandbox's user may not do, nobody does by files, by whatever way.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	c, dir := newFiles(t)
	ctx := t.Context()
	// Of root, and closed: the tests' own where they are root's.
	closed, secret := "/proc/1/fd", "/etc/shadow"
	if os.Geteuid() == 0 {
		top := t.TempDir() // is closed itself
		must(t, os.Chmod(filepath.Dir(top), 0o755), os.Chmod(top, 0o755))
		closed, secret = filepath.Join(top, "closed"), filepath.Join(top, "secret")
		must(t, os.Mkdir(closed, 0o700), os.WriteFile(secret, []byte("secret"), 0o600))
	}
	must(t, os.Symlink(secret, filepath.Join(dir, "link")), os.Symlink(closed, filepath.Join(dir, "folder")),
		os.WriteFile(filepath.Join(dir, "own"), []byte("own"), 0o644))
	var tarball bytes.Buffer
	out, err := c.Files().TarOut(ctx, at("own"))
	must(t, err)
	_, err = io.Copy(&tarball, out)
	must(t, err)
	denied := func(what string, err error) {
		t.Helper()
		if code(err) != wire.CodeDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{secret, "link"} {
		_, err := content(t, c, name)
		denied("read "+name, err)
		out, err := c.Files().TarOut(ctx, at(name))
		if err == nil {
			_, err = io.Copy(io.Discard, out)
		}
		denied("tar of "+name, err)
		denied("write "+name, c.Files().Write(ctx, at(name), strings.NewReader("x")))
	}
	for _, name := range []string{closed, "folder"} {
		_, err := c.Files().List(ctx, at(name), 10)
		denied("list "+name, err)
		denied("write in "+name, c.Files().Write(ctx, at(name+"/x"), strings.NewReader("x")))
		denied("folder in "+name, c.Files().MakeDir(ctx, at(name+"/x")))
		_, err = c.Files().TarIn(ctx, at(name), bytes.NewReader(tarball.Bytes()))
		denied("unpack in "+name, err)
		_, err = c.Files().Watch(ctx, at(name))
		denied("watch "+name, err)
	}
	denied("remove", c.Files().Remove(ctx, at(secret)))
	if status, err := content(t, c, "/proc/self/status"); os.Geteuid() == 0 &&
		(err != nil || !strings.Contains(status, fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", theUser)) || !strings.Contains(status,
			"Groups:\t \n") || !strings.Contains(status, "CapEff:\t0000000000000000\n")) {
		t.Errorf("it runs as %s, %v", status, err)
	}

	// A name that is now the user's file, now a link to another's, and sometimes none.
	over := make(chan struct{})
	swapped := make(chan struct{})
	go func() {
		defer close(swapped)
		for {
			for _, to := range []string{filepath.Join(dir, "own"), secret} {
				select {
				case <-over:
					return
				default:
				}
				_ = os.Symlink(to, filepath.Join(dir, "next"))
				_ = os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "race"))
			}
		}
	}()
	seen := map[string]int{}
	for range 500 {
		got, err := content(t, c, "race")
		if err != nil {
			got = string(code(err))
		}
		seen[got]++
		_ = c.Files().Write(ctx, at("race/../race"), strings.NewReader("own"))
		_ = c.Files().Write(ctx, at("race"), strings.NewReader("own"))
	}
	close(over)
	<-swapped
	for got := range seen {
		if got != "own" && got != string(wire.CodeDenied) && got != string(wire.CodeNotFound) {
			t.Errorf("it was read: %q", got)
		}
	}
	if b, err := os.ReadFile(secret); os.Geteuid() == 0 && string(b) != "secret" {
		t.Errorf("it was written: %q, %v", b, err)
	}
}

func TestTar(t *testing.T) {
	t.Parallel()
	c, dir := newFiles(t)
	ctx := t.Context()
	must(t, c.Files().MakeDir(ctx, wireclient.FileQuery{Path: "src/in", Parents: true}), c.Files().MakeDir(ctx, at("dst")),
		c.Files().MakeDir(ctx, at("src/closed")))
	write(t, c, at("src/in/f"), strings.Repeat("x", 3<<20))
	write(t, c, at("src/closed/f"), "closed")
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "src/out")), syscall.Mkfifo(filepath.Join(dir, "src/pipe"), 0o600))
	tarball := func(name string) ([]byte, wire.TransferSummary, error) {
		out, err := c.Files().TarOut(ctx, at(name))
		if err != nil {
			return nil, wire.TransferSummary{}, err
		}
		defer out.Close()
		b, err := io.ReadAll(out)
		return b, out.End(), err
	}
	b, end, err := tarball("src")
	want := wire.TransferSummary{Files: 3, Bytes: 3<<20 + 6, Skipped: 1}
	if err != nil || end != want {
		t.Errorf("%+v, %v", end, err)
	}
	want.Skipped = 0
	if end, err := c.Files().TarIn(ctx, at("dst"), bytes.NewReader(b)); err != nil || end != want {
		t.Errorf("%+v, %v", end, err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "dst/src/out")); to != "/etc/passwd" {
		t.Errorf("a link leads to %q, %v", to, err)
	}
	if got, err := content(t, c, "dst/src/in/f"); err != nil || len(got) != 3<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// What cannot be read costs itself alone, and is told.
	must(t, os.Chmod(filepath.Join(dir, "src/closed"), 0), c.Files().Remove(ctx, wireclient.FileQuery{Path: "dst/src", All: true}))
	b, _, err = tarball("src")
	if code(err) != wire.CodeDenied {
		t.Errorf("%v", err)
	}
	if end, err := c.Files().TarIn(ctx, at("dst"), bytes.NewReader(b)); err != nil || end.Files != 2 {
		t.Errorf("%+v, %v", end, err)
	}
	must(t, os.Chmod(filepath.Join(dir, "src/closed"), 0o700))
	for name, row := range map[string]struct {
		to   string
		what io.Reader
		want wire.Code
	}{
		"no folder":  {"none", bytes.NewReader(b), wire.CodeNotFound},
		"a file":     {"src/in/f", bytes.NewReader(b), wire.CodeFileType},
		"no tar":     {"dst", strings.NewReader(strings.Repeat("noise", 1000)), wire.CodeBadRequest},
		"half a tar": {"dst", bytes.NewReader(b[:1<<20]), wire.CodeBadRequest},
	} {
		if _, err := c.Files().TarIn(ctx, at(row.to), row.what); code(err) != row.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := tarball("none"); code(err) != wire.CodeNotFound {
		t.Errorf("a tar of nothing: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "dst", "*", "*", ".sandbox-agent-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
