package archive

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

var (
	// ErrOutsideRoot is of an archive that would write outside of its directory.
	ErrOutsideRoot = errors.New("it leads out of the directory")
	// ErrLimit is of an archive with more than may be.
	ErrLimit = errors.New("there is more than may be")
	// ErrArchive is of what is no archive, or not a whole one.
	ErrArchive = errors.New("the archive cannot be read")
)

// Options are how an archive is unpacked.
type Options struct {
	// Top takes the place of the first part of each name; "" leaves it.
	Top string
	// Inside leaves links out that lead, or could lead, out of what is unpacked.
	Inside bool
	// Exact gives files the permissions of the archive; otherwise less what the umask takes.
	Exact bool
	// MaxFiles bounds files, links and directories, MaxBytes the content of all files; 0 is no bound.
	MaxFiles, MaxBytes int64
}

const (
	// perFile is what an archive may have for each of MaxFiles besides content, in bytes.
	perFile = 16 << 10
	// maxRest bounds what follows an archive's end, in bytes: tools fill their last block.
	maxRest = 1 << 20
	// missingMode is of directories that the archive does not have and its names need.
	missingMode = 0o755
)

// Unpack unpacks a tar in a directory that is there, up to the reader's end. Whatever the archive has, nothing is
// written outside of the directory, nor through a link in it. A file appears whole, in place of one of that name or of a
// link; a directory that is there keeps its permissions.
func Unpack(dir string, r io.Reader, o Options) (Sum, error) {
	if info, err := os.Stat(dir); err != nil {
		return Sum{}, err
	} else if !info.IsDir() {
		return Sum{}, &fs.PathError{Op: "unpack in", Path: dir, Err: syscall.ENOTDIR}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Sum{}, err
	}
	defer root.Close()
	if o.MaxFiles > 0 && o.MaxBytes > 0 {
		r = &bounded{r, o.MaxBytes + perFile*o.MaxFiles}
	}
	u := &unpacker{Options: o, root: root, buf: make([]byte, bufferSize)}
	err = u.all(r)
	return u.sum, errors.Join(err, u.finish())
}

// bounded is a reader that may bring so many bytes.
type bounded struct {
	r    io.Reader
	left int64
}

// LimitWriter passes writes on to W. It returns ErrLimit for a write of more than Left bytes.
type LimitWriter struct {
	W    io.Writer
	Left int64
}

func (l *LimitWriter) Write(b []byte) (int, error) {
	if l.Left -= int64(len(b)); l.Left < 0 {
		return 0, ErrLimit
	}
	return l.W.Write(b)
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, ErrLimit
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

type unpacker struct {
	Options
	root    *os.Root
	buf     []byte
	sum     Sum
	entries int64
	parent  string // the last directory that was found to be one, with all above it
	later   []pendingDir
}

// pendingDir gets its permissions at the end: they would keep us from filling it.
type pendingDir struct {
	name string
	mode fs.FileMode
}

// Each calls f for each entry of a tar stream until f returns an error.
func Each(r io.Reader, f func(h *tar.Header, content io.Reader) error) error {
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return broken(err)
		}
		if err := f(h, tr); err != nil {
			return err
		}
	}
}

func (u *unpacker) all(r io.Reader) error {
	err := Each(r, func(h *tar.Header, content io.Reader) error {
		if h.Typeflag == tar.TypeXGlobalHeader {
			return nil // its bytes are bounded
		}
		if u.entries++; u.MaxFiles > 0 && u.entries > u.MaxFiles {
			return fmt.Errorf("%w: more than %d files", ErrLimit, u.MaxFiles)
		}
		return u.entry(h, content)
	})
	if err != nil {
		return err
	}
	return rest(r)
}

// rest reads what follows the archive, whose end may tell of an error.
func rest(r io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxRest+1))
	if err == nil && n > maxRest {
		err = ErrLimit
	}
	return err
}

// broken is the error of reading an archive: of the archive, unless its source has one of its own.
func broken(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrFieldTooLong) {
		return fmt.Errorf("%w: %w", ErrArchive, err)
	}
	return err
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	name, below, err := u.name(h.Name)
	if err != nil {
		return err
	}
	if err := u.enter(path.Dir(name)); err != nil {
		return err
	}
	perm := h.FileInfo().Mode().Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(name, perm)
	case tar.TypeReg:
		if u.MaxBytes > 0 && h.Size > u.MaxBytes-u.sum.Bytes {
			return fmt.Errorf("%w: more than %d bytes", ErrLimit, u.MaxBytes)
		}
		return u.file(name, perm, r)
	case tar.TypeSymlink:
		if u.Inside && !inside(below, h.Linkname) {
			u.sum.leave(name)
			return nil
		}
		return u.put(name, func(temp string) error { return u.root.Symlink(h.Linkname, temp) })
	case tar.TypeLink:
		return u.link(name, h.Linkname)
	}
	u.sum.leave(name)
	return nil
}

// name is an entry's name in the directory, and below is what of it lies below its first part.
func (u *unpacker) name(raw string) (name, below string, err error) {
	parts := strings.Split(strings.TrimSuffix(raw, "/"), "/")
	if parts[0] == "" || slices.Contains(parts, "..") || strings.ContainsRune(raw, 0) {
		return "", "", fmt.Errorf("%q: %w", raw, ErrOutsideRoot)
	}
	below = path.Join(parts[1:]...)
	if u.Top != "" {
		parts[0] = u.Top
	}
	return path.Join(parts...), below, nil
}

// inside reports whether a link's target stays below the first part of the name that the link has below it: it goes
// up by no more directories than there are, which are real ones, and then only down.
func inside(below, target string) bool {
	if below == "" || target == "" || path.IsAbs(target) {
		return false
	}
	depth := strings.Count(below, "/")
	down := false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part != "..":
			down = true
		case down:
			return false // up again from what may be a link
		default:
			depth--
		}
	}
	return depth >= 0
}

// enter makes sure that a directory and all above it are directories and no links, and makes those that are missing.
func (u *unpacker) enter(dir string) error {
	if dir == "." || dir == u.parent {
		return nil
	}
	if err := u.enter(path.Dir(dir)); err != nil {
		return err
	}
	if err := u.makeDir(dir, missingMode); err != nil {
		return err
	}
	u.parent = dir
	return nil
}

// makeDir makes a directory unless it is there.
func (u *unpacker) makeDir(name string, perm fs.FileMode) error {
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = u.root.Mkdir(name, perm|0o700); err == nil && u.Exact {
			err = u.root.Chmod(name, perm|0o700)
		}
		if err == nil && perm&0o700 != 0o700 {
			u.later = append(u.later, pendingDir{name, perm})
		}
		return err
	}
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "make directory", Path: name, Err: fs.ErrExist}
	}
	return err
}

func (u *unpacker) directory(name string, perm fs.FileMode) error {
	if name == "." {
		return nil
	}
	return u.makeDir(name, perm)
}

func (u *unpacker) file(name string, perm fs.FileMode, r io.Reader) error {
	return u.put(name, func(temp string) error {
		f, err := u.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if err != nil {
			return err
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{f}, r, u.buf)
		u.sum.Bytes += n
		if err == nil && u.Exact {
			err = f.Chmod(perm)
		}
		return errors.Join(broken(err), f.Close())
	})
}

func (u *unpacker) link(name, target string) error {
	old, _, err := u.name(target)
	if err != nil {
		return err
	}
	if err := u.enter(path.Dir(old)); err != nil {
		return err
	}
	info, err := u.root.Lstat(old)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // another name of a link would lead elsewhere
		return fmt.Errorf("%q: %w", target, ErrOutsideRoot)
	}
	if err := u.enter(path.Dir(name)); err != nil {
		return err
	}
	if there, err := u.root.Lstat(name); err == nil && os.SameFile(info, there) {
		return nil // a rename would do nothing
	}
	return u.put(name, func(temp string) error { return u.root.Link(old, temp) })
}

// put makes a file or link and brings it to its place at once.
func (u *unpacker) put(name string, mk func(temp string) error) error {
	if name == "." {
		return fmt.Errorf("%q: %w", name, ErrOutsideRoot)
	}
	temp := path.Join(path.Dir(name), TempName())
	err := mk(temp)
	if err == nil {
		err = u.root.Rename(temp, name)
	}
	if err != nil {
		_ = u.root.Remove(temp) // best effort: it is not there, or what keeps it is the error
		return err
	}
	u.sum.Files++
	return nil
}

// TempName is a name that no file has, of one that is not whole.
func TempName() string { return ".sandbox-agent-" + rand.Text() }

// finish gives directories their permissions, the inner ones first.
func (u *unpacker) finish() error {
	var errs []error
	for _, f := range slices.Backward(u.later) {
		errs = append(errs, u.root.Chmod(f.name, f.mode))
	}
	return errors.Join(errs...)
}
