package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/tree"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Bounds of CopyOut: what a sandbox sends is not to fill this machine's disk.
const (
	MaxCopyFiles = 1_000_000 // folders count
	MaxCopyBytes = 64 << 30
)

// Copied is what was copied.
type Copied struct {
	Files int64 `json:"files"` // and links
	Bytes int64 `json:"bytes"` // of files
	// Left counts what was left out: devices, pipes and sockets and, by CopyOut, links that lead out of the copied folder. FirstLeft is the name of one, where
	// it is known.
	Left      int64  `json:"left_out"`
	FirstLeft string `json:"first_left_out,omitempty"`
}

// target is where a copy goes: a folder that is there, and a name in it; "." is the folder itself.
type target struct{ dir, name string }

// whole reports whether a path names a folder by what is in it, as dir/. does.
func whole(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	return last == "." || last == ".." || strings.Trim(path, "/") == ""
}

// base is a path's last name.
func base(path string) string {
	if whole(path) {
		return "."
	}
	return filepath.Base(path)
}

// targetOf decides where a copy of a source goes, as cp -r does: into a folder that is there, else to the path itself. there is nil where nothing is.
func targetOf(source string, folder bool, path string, there *fs.FileMode) (target, error) {
	trimmed := strings.TrimRight(path, "/")
	dir, name := trimmed[:strings.LastIndexByte(trimmed, '/')+1], base(trimmed)
	if dir == "" {
		dir = "."
	}
	switch {
	case there != nil && there.IsDir():
		return target{path, base(source)}, nil
	case there != nil && folder:
		return target{}, &kindError{ErrFileKind, fmt.Errorf("%s is no folder, and %s is one", path, source)}
	case there != nil && !there.IsRegular():
		return target{}, &kindError{ErrFileKind, fmt.Errorf("%s is a device, a pipe or a socket", path)}
	case there == nil && (trimmed != path && !folder || name == "."):
		return target{}, &kindError{ErrNotFound, fmt.Errorf("there is no folder %s", path)}
	}
	return target{dir, name}, nil
}

// CopyIn copies a file or folder of this machine into the sandbox, with its permissions; links in a folder stay links. Where path is a folder, the copy is in
// it, under the source's name, or with local ending in /. all that is in the source; else path is the copy's own, in a folder that is there. What is there
// of the same name is replaced, and folders are filled.
func (f *Files) CopyIn(ctx context.Context, local, path string) (Copied, error) {
	info, err := os.Stat(local)
	if err != nil {
		return Copied{}, hostError(err)
	}
	there, err := f.lookFor(ctx, path)
	if err != nil {
		return Copied{}, err
	}
	to, err := targetOf(local, info.IsDir(), path, there)
	if err != nil {
		return Copied{}, f.of(err)
	}
	if !info.IsDir() {
		if there == nil || there.IsDir() {
			path = to.dir + "/" + to.name
		}
		return f.fileIn(ctx, local, path)
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	var sum tree.Sum
	go func() {
		var err error
		sum, err = tree.Pack(ctx, w, local, to.name)
		_, unread := errors.AsType[*tree.UnreadError](err)
		if unread {
			w.Close() // all others are there
		} else {
			w.CloseWithError(err)
		}
		packed <- err
	}()
	e, err := f.tarIn(ctx, to.dir, r)
	r.Close()
	perr := <-packed
	if err == nil {
		err = hostError(perr)
	}
	return Copied{Files: sum.Files, Bytes: sum.Bytes, Left: sum.Left + e.Left, FirstLeft: sum.FirstLeft}, err
}

func (f *Files) fileIn(ctx context.Context, local, path string) (Copied, error) {
	file, err := tree.Open(local)
	if err != nil {
		return Copied{}, hostError(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return Copied{}, hostError(err)
	}
	perm := info.Mode().Perm()
	src := &source{r: file}
	err = f.Write(ctx, path, src, WriteOptions{Mode: &perm})
	if src.err != nil {
		err = hostError(src.err)
	}
	if err != nil {
		return Copied{}, err
	}
	return Copied{Files: 1, Bytes: src.n}, nil
}

// CopyOut copies a file or folder of the sandbox to this machine; where it goes is as for CopyIn, and permissions are less what the umask takes. The sandbox is not
// trusted: nothing is written outside of the copy, links that lead out of it are left out, and it has at most MaxCopyFiles files and MaxCopyBytes bytes, or ends
// in ErrTooMuch. After an error, some of it may be there, each file whole.
func (f *Files) CopyOut(ctx context.Context, path, local string) (Copied, error) {
	info, err := f.Stat(ctx, path)
	if err != nil {
		return Copied{}, err
	}
	there, err := lookHere(local)
	if err != nil {
		return Copied{}, hostError(err)
	}
	to, err := targetOf(path, info.Mode.IsDir(), local, there)
	if err == nil && there != nil && !there.IsDir() { // through a link of this machine's
		var file string
		if file, err = filepath.EvalSymlinks(local); err == nil {
			to = target{filepath.Dir(file), filepath.Base(file)}
		}
	}
	if err != nil {
		return Copied{}, hostError(err)
	}
	var sum tree.Sum
	var left int64
	err = f.use(ctx, func(c *wireclient.Client) error {
		content, err := c.TarOut(ctx, wireclient.Query{Path: path})
		if err != nil {
			return err
		}
		defer content.Close()
		src := &source{r: content}
		sum, err = tree.Unpack(to.dir, src, tree.Options{Top: to.name, Inside: true, MaxFiles: MaxCopyFiles, MaxBytes: MaxCopyBytes})
		left = content.End().Left
		return unpacked(err, src.err)
	})
	return Copied{Files: sum.Files, Bytes: sum.Bytes, Left: sum.Left + left, FirstLeft: sum.FirstLeft}, err
}

// lookFor is the type of what is at a path in the sandbox; nil if nothing is.
func (f *Files) lookFor(ctx context.Context, path string) (*fs.FileMode, error) {
	i, err := f.Stat(ctx, path)
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CodeNotFound {
		return nil, nil
	}
	return &i.Mode, err
}

// lookHere is the type of what is at a path on this machine; nil if nothing is.
func lookHere(path string) (*fs.FileMode, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := info.Mode()
	return &m, nil
}

// of says that an error is of a path in the sandbox.
func (f *Files) of(err error) error { return fmt.Errorf("in sandbox %s: %w", f.sb.spec.Name, err) }

// hostError says that an error is of this machine's files, and of which kind.
func hostError(err error) error {
	if err == nil {
		return nil
	}
	for from, to := range map[error]error{fs.ErrNotExist: ErrNotFound, fs.ErrPermission: ErrPermission, fs.ErrExist: ErrExists, tree.ErrNoFile: ErrFileKind, syscall.ENOTDIR: ErrFileKind, syscall.EISDIR: ErrFileKind} {
		if errors.Is(err, from) {
			err = &kindError{to, err}
			break
		}
	}
	return fmt.Errorf("on this machine: %w", err)
}

// unpacked is the error of unpacking what a sandbox has sent.
func unpacked(err, read error) error {
	switch {
	case err == nil || read != nil:
		return read
	case errors.Is(err, tree.ErrBounds):
		return &kindError{ErrTooMuch, err}
	case errors.Is(err, tree.ErrOutside) || errors.Is(err, tree.ErrArchive):
		return fmt.Errorf("unpack what the sandbox sends: %w", err)
	}
	return hostError(err)
}

// source is a reader that remembers how much it has read, and its error.
type source struct {
	r   io.Reader
	n   int64
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
