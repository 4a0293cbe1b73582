package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Errors of files on which a caller branches, in addition to ErrNotFound, ErrExists and ErrConnectionLost.
var (
	// ErrPermission means that the sandbox's user may not access a file.
	ErrPermission = errors.New("permission denied for the sandbox's user")
	// ErrFileType means that a file is of the wrong type, such as a directory instead of a file, or a device, pipe or socket.
	ErrFileType = errors.New("wrong file type")
	// ErrLimitReached means that the sandbox's disk is full or its process limit is reached.
	ErrLimitReached = errors.New("disk or process limit of the sandbox reached")
	// ErrTooLarge means that a limit of this package is exceeded: MaxList, MaxCopyFiles or MaxCopyBytes.
	ErrTooLarge = errors.New("more files or bytes than allowed from a sandbox")
)

// MaxList is the limit of List, in entries.
const MaxList = 100_000

// Files accesses the files of a sandbox with the rights of its user; neither links nor races lead beyond them. A path
// is absolute or relative to the sandbox's working directory. A link at the end of a path is followed unless a method
// documents otherwise. The context of a method bounds all of it. Methods start a stopped sandbox.
type Files struct{ in *instance }

// FileInfo describes a file.
type FileInfo struct {
	Name     string      // without directory; any bytes except zero and /
	Mode     fs.FileMode // type and permissions
	Size     int64
	Modified time.Time
	UID, GID uint32
	Target   string // of a link
}

func fileInfo(i wire.FileInfo) FileInfo {
	m := fs.FileMode(i.Mode) & fs.ModePerm
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if i.Mode&bit != 0 {
			m |= flag
		}
	}
	m |= map[wire.FileType]fs.FileMode{wire.TypeDir: fs.ModeDir, wire.TypeLink: fs.ModeSymlink, wire.TypeOther: fs.ModeIrregular}[i.Type]
	return FileInfo{Name: string(i.Name), Mode: m, Size: i.Size, Modified: i.Modified, UID: i.UID, GID: i.GID, Target: string(i.Target)}
}

// WriteOptions control how a file or directory is created.
type WriteOptions struct {
	// Mode has the permissions; nil keeps those of an existing file and means 0644 for a new file, 0755 for a new directory.
	Mode *fs.FileMode
	// Parents creates missing parent directories.
	Parents bool
}

func (o WriteOptions) query(path string) wireclient.FileQuery {
	q := wireclient.FileQuery{Path: path, Parents: o.Parents}
	if o.Mode != nil {
		m := uint32(o.Mode.Perm())
		for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
			if *o.Mode&flag != 0 {
				m |= bit
			}
		}
		q.Mode = &m
	}
	return q
}

// use calls f with the connection and adds the sandbox's name to an error.
func (f *Files) use(ctx context.Context, call func(wireclient.Files) error) error {
	err := f.in.use(ctx, func(c *wireclient.Client) error { return call(c.Files()) })
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return &kindError{err, fmt.Errorf("in sandbox %s: %s", f.in.spec.Name, e.Text)}
	}
	return err
}

// Open returns the content of a regular file. It returns io.EOF only after all of it was read. The caller must close it.
func (f *Files) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	content, err := fileQuery(ctx, f, func(c wireclient.Files) (*wireclient.FileReader, error) {
		return c.Open(ctx, wireclient.FileQuery{Path: path})
	})
	if err != nil {
		return nil, err
	}
	return reader{content}, nil
}

// reader maps errors to those of this package.
type reader struct{ *wireclient.FileReader }

func (r reader) Read(p []byte) (int, error) {
	n, err := r.FileReader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = public(err)
	}
	return n, err
}

// Write replaces a file's content by all of r, atomically. An existing file is replaced by a new one of the same name
// and owner; its other hard links keep the old content. If path is a link, its target is replaced.
func (f *Files) Write(ctx context.Context, path string, r io.Reader, o WriteOptions) error {
	return f.use(ctx, func(c wireclient.Files) error { return c.Write(ctx, o.query(path), r) })
}

// Stat returns information about a file and follows a link at the path's end.
func (f *Files) Stat(ctx context.Context, path string) (FileInfo, error) {
	return f.stat(ctx, wireclient.FileQuery{Path: path})
}

// Lstat returns information about a file, or the link itself at the path's end.
func (f *Files) Lstat(ctx context.Context, path string) (FileInfo, error) {
	return f.stat(ctx, wireclient.FileQuery{Path: path, Link: true})
}

func (f *Files) stat(ctx context.Context, q wireclient.FileQuery) (FileInfo, error) {
	info, err := fileQuery(ctx, f, func(c wireclient.Files) (wire.FileInfo, error) { return c.Info(ctx, q) })
	return fileInfo(info), err
}

// List returns the entries of a directory, sorted by the bytes of their names, without following links. More than
// MaxList entries are an ErrTooLarge.
func (f *Files) List(ctx context.Context, path string) ([]FileInfo, error) {
	list, err := fileQuery(ctx, f, func(c wireclient.Files) ([]wire.FileInfo, error) {
		return c.List(ctx, wireclient.FileQuery{Path: path}, MaxList)
	})
	if err != nil {
		return nil, err
	}
	all := make([]FileInfo, 0, len(list))
	for _, i := range list {
		all = append(all, fileInfo(i))
	}
	return all, nil
}

// Mkdir creates a directory. With Parents an existing one is not an error.
func (f *Files) Mkdir(ctx context.Context, path string, o WriteOptions) error {
	return f.use(ctx, func(c wireclient.Files) error { return c.MakeDir(ctx, o.query(path)) })
}

// Remove removes a file, a link itself or an empty directory. A directory that is not empty is an ErrExists.
func (f *Files) Remove(ctx context.Context, path string) error {
	return f.use(ctx, func(c wireclient.Files) error { return c.Remove(ctx, wireclient.FileQuery{Path: path}) })
}

// RemoveAll removes a file, a link itself or a directory tree. A missing path is an ErrNotFound.
func (f *Files) RemoveAll(ctx context.Context, path string) error {
	return f.use(ctx, func(c wireclient.Files) error { return c.Remove(ctx, wireclient.FileQuery{Path: path, All: true}) })
}

// TarOut writes a tar of a file or directory tree; the names begin with the path's last element. It follows a link at
// the path's end, and archives other links as links. It skips devices, pipes and sockets. Unreadable files are missing
// in the tar and make an error. Do not trust the tar when you unpack it; CopyOut does not.
func (f *Files) TarOut(ctx context.Context, path string, w io.Writer) error {
	return f.use(ctx, func(c wireclient.Files) error {
		content, err := c.TarOut(ctx, wireclient.FileQuery{Path: path})
		if err != nil {
			return err
		}
		defer content.Close()
		_, err = io.Copy(w, content)
		return err
	})
}

// TarIn unpacks a tar in a directory. It writes nothing outside of the directory or through links in it, and skips devices and pipes. The
// sandbox's user owns the files. After an error the files may be incomplete, but no file is partial.
func (f *Files) TarIn(ctx context.Context, path string, r io.Reader) error {
	_, err := f.tarIn(ctx, path, r)
	return err
}

func (f *Files) tarIn(ctx context.Context, path string, r io.Reader) (wire.TransferSummary, error) {
	return fileQuery(ctx, f, func(c wireclient.Files) (wire.TransferSummary, error) {
		return c.TarIn(ctx, wireclient.FileQuery{Path: path}, r)
	})
}

// SFTP connects to an SFTP server for these files. Relative paths begin at the sandbox's working directory. ctx bounds
// the connection attempt.
func (f *Files) SFTP(ctx context.Context) (net.Conn, error) {
	return fileQuery(ctx, f, func(c wireclient.Files) (net.Conn, error) { return c.SFTP(ctx, wireclient.FileQuery{Path: "."}) })
}

// ChangeType is the type of a Change.
type ChangeType string

// Types of changes.
const (
	ChangeCreated ChangeType = "made"    // or moved here
	ChangeWritten ChangeType = "written" // content changed
	ChangeRemoved ChangeType = "gone"    // or moved away
	ChangeMode    ChangeType = "rights"  // permissions, owner or times
	// ChangeOverflow means that changes were dropped: read everything again.
	ChangeOverflow ChangeType = "missed"
)

// Change is a change of a watched file.
type Change struct {
	Type  ChangeType
	Path  string // relative to the watched path; "" is that path
	IsDir bool
}

// Watch reports the changes of a file or directory. Its methods are for one goroutine.
type Watch struct {
	w *wireclient.Watch
}

// WatchOptions control Watch.
type WatchOptions struct {
	// Recursive also watches the directories below a directory.
	Recursive bool
}

// Watch watches a file or directory. It reports every change made after it returns. The end of ctx ends it. The caller must call Close.
func (f *Files) Watch(ctx context.Context, path string, o WatchOptions) (*Watch, error) {
	w, err := fileQuery(ctx, f, func(c wireclient.Files) (*wireclient.Watch, error) {
		return c.Watch(ctx, wireclient.FileQuery{Path: path, All: o.Recursive})
	})
	if err != nil {
		return nil, err
	}
	return &Watch{w}, nil
}

// Next waits for a change. It returns io.EOF when the watched path was removed.
func (w *Watch) Next() (Change, error) {
	c, err := w.w.Next()
	if err != nil {
		return Change{}, public(err)
	}
	kind := map[wire.ChangeType]ChangeType{
		wire.ChangeCreated: ChangeCreated, wire.ChangeWritten: ChangeWritten, wire.ChangeRemoved: ChangeRemoved,
		wire.ChangeMode: ChangeMode, wire.ChangeOverflow: ChangeOverflow,
	}[c.Type]
	return Change{kind, string(c.Path), c.IsDir}, nil
}

// Close ends the watch.
func (w *Watch) Close() error { return w.w.Close() }
