package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/archive"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Limits of CopyOut. They keep a sandbox from filling the host's disk.
const (
	MaxCopyFiles = 1_000_000 // including directories
	MaxCopyBytes = 64 << 30
)

// CopyResult is the outcome of a copy.
type CopyResult struct {
	Files int64 `json:"files"` // including links
	Bytes int64 `json:"bytes"` // in files
	// Skipped counts skipped entries: devices, pipes, sockets and, in CopyOut, links that lead out of the copied
	// directory. FirstSkipped is the name of one of them, if known.
	Skipped      int64  `json:"left_out"`
	FirstSkipped string `json:"first_left_out,omitempty"`
}

// target is the destination of a copy: an existing directory and a name in it; "." is the directory itself.
type target struct{ dir, name string }

// whole reports whether a path means a directory's content, as dir/. does.
func whole(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	return last == "." || last == ".." || strings.Trim(path, "/") == ""
}

func base(path string) string {
	if whole(path) {
		return "."
	}
	return filepath.Base(path)
}

// targetOf returns the destination of a copy by the rules of cp -r: path is an existing directory or names the copy. there
// is nil if path does not exist.
func targetOf(source string, isDir bool, path string, there *fs.FileMode) (target, error) {
	trimmed := strings.TrimRight(path, "/")
	dir, name := trimmed[:strings.LastIndexByte(trimmed, '/')+1], base(trimmed)
	dir = cmp.Or(dir, ".")
	switch {
	case there != nil && there.IsDir():
		return target{path, base(source)}, nil
	case there != nil && isDir:
		return target{}, &kindError{ErrFileType, fmt.Errorf("%s is not a directory, but %s is", path, source)}
	case there != nil && !there.IsRegular():
		return target{}, &kindError{ErrFileType, fmt.Errorf("%s is a device, a pipe or a socket", path)}
	case there == nil && (trimmed != path && !isDir || name == "."):
		return target{}, &kindError{ErrNotFound, fmt.Errorf("no directory %s", path)}
	}
	return target{dir, name}, nil
}

// CopyIn copies a file or directory of the host into the sandbox, with its permissions; links in a directory stay links. If path is a
// directory, the copy goes into it under the source's name, or with local ending in "/." as its content. Otherwise path names the copy,
// in an existing directory. Existing files are replaced, existing directories are merged.
func (f *Files) CopyIn(ctx context.Context, local, path string) (CopyResult, error) {
	info, err := os.Stat(local)
	if err != nil {
		return CopyResult{}, hostError(err)
	}
	there, err := f.lookFor(ctx, path)
	if err != nil {
		return CopyResult{}, err
	}
	to, err := targetOf(local, info.IsDir(), path, there)
	if err != nil {
		return CopyResult{}, fmt.Errorf("in sandbox %s: %w", f.in.spec.Name, err)
	}
	if !info.IsDir() {
		if there == nil || there.IsDir() {
			path = to.dir + "/" + to.name
		}
		return f.fileIn(ctx, local, path)
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	var sum archive.Sum
	go func() {
		var err error
		sum, err = archive.Pack(ctx, w, local, to.name)
		_, unread := errors.AsType[*archive.ReadError](err)
		if unread {
			w.Close() // end the tar: the readable files are copied
		} else {
			w.CloseWithError(err)
		}
		packed <- err
	}()
	e, err := f.tarIn(ctx, to.dir, r)
	r.Close()
	perr := <-packed
	err = cmp.Or(err, hostError(perr))
	return CopyResult{Files: sum.Files, Bytes: sum.Bytes, Skipped: sum.Left + e.Skipped, FirstSkipped: sum.FirstLeft}, err
}

func (f *Files) fileIn(ctx context.Context, local, path string) (CopyResult, error) {
	file, err := archive.Open(local)
	if err != nil {
		return CopyResult{}, hostError(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return CopyResult{}, hostError(err)
	}
	perm := info.Mode().Perm()
	src := &source{r: file}
	err = f.Write(ctx, path, src, WriteOptions{Mode: &perm})
	if src.err != nil {
		err = hostError(src.err)
	}
	if err != nil {
		return CopyResult{}, err
	}
	return CopyResult{Files: 1, Bytes: src.n}, nil
}

// CopyOut copies a file or directory of the sandbox to the host. The destination follows the rules of CopyIn; the umask applies. It does
// not trust the sandbox: it writes nothing outside of the copy and skips links that lead out of it. More than MaxCopyFiles files or
// MaxCopyBytes bytes are an ErrTooLarge. After an error the copy may be incomplete, but has no partial file.
func (f *Files) CopyOut(ctx context.Context, path, local string) (CopyResult, error) {
	info, err := f.Stat(ctx, path)
	if err != nil {
		return CopyResult{}, err
	}
	there, err := lookHere(local)
	if err != nil {
		return CopyResult{}, hostError(err)
	}
	to, err := targetOf(path, info.Mode.IsDir(), local, there)
	if err == nil && there != nil && !there.IsDir() { // through a link on the host
		var file string
		if file, err = filepath.EvalSymlinks(local); err == nil {
			to = target{filepath.Dir(file), filepath.Base(file)}
		}
	}
	if err != nil {
		return CopyResult{}, hostError(err)
	}
	var sum archive.Sum
	var left int64
	err = f.use(ctx, func(c wireclient.Files) error {
		content, err := c.TarOut(ctx, wireclient.FileQuery{Path: path})
		if err != nil {
			return err
		}
		defer content.Close()
		src := &source{r: content}
		sum, err = archive.Unpack(to.dir, src, archive.Options{Top: to.name, Inside: true, MaxFiles: MaxCopyFiles, MaxBytes: MaxCopyBytes})
		left = content.End().Skipped
		return unpacked(err, src.err)
	})
	return CopyResult{Files: sum.Files, Bytes: sum.Bytes, Skipped: sum.Left + left, FirstSkipped: sum.FirstLeft}, err
}

// lookFor returns the type of a path in the sandbox; nil if it does not exist.
func (f *Files) lookFor(ctx context.Context, path string) (*fs.FileMode, error) {
	i, err := f.Stat(ctx, path)
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CodeNotFound {
		return nil, nil
	}
	return &i.Mode, err
}

// lookHere returns the type of a path on the host; nil if it does not exist.
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

// hostError marks an error as one of the host's files and maps it to this package's errors.
func hostError(err error) error {
	if err == nil {
		return nil
	}
	for from, to := range map[error]error{
		fs.ErrNotExist: ErrNotFound, fs.ErrPermission: ErrPermission, fs.ErrExist: ErrExists,
		archive.ErrNotRegular: ErrFileType, syscall.ENOTDIR: ErrFileType, syscall.EISDIR: ErrFileType,
	} {
		if errors.Is(err, from) {
			err = &kindError{to, err}
			break
		}
	}
	return fmt.Errorf("on this machine: %w", err)
}

// unpacked returns the error of unpacking the sandbox's archive.
func unpacked(err, read error) error {
	switch {
	case err == nil || read != nil:
		return read
	case errors.Is(err, archive.ErrLimit):
		return &kindError{ErrTooLarge, err}
	case errors.Is(err, archive.ErrOutsideRoot) || errors.Is(err, archive.ErrArchive):
		return fmt.Errorf("unpack the sandbox's archive: %w", err)
	}
	return hostError(err)
}

// source is a reader that counts its bytes and remembers its error.
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
