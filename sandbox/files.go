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

// Errors of files on which a caller branches, besides ErrNotFound, ErrExists and ErrLost.
var (
	// ErrPermission means that the sandbox's user has no right to a file.
	ErrPermission = errors.New("the sandbox's user has no right to it")
	// ErrFileKind means that there is a folder where a file is needed, or the other way round, or neither: a device, a pipe, a socket.
	ErrFileKind = errors.New("it is of another kind")
	// ErrFull means that the sandbox has no room, or no process, for it.
	ErrFull = errors.New("the sandbox is at a limit")
	// ErrTooMuch means that there is more than this package takes from a sandbox: see MaxList, MaxCopyFiles and MaxCopyBytes.
	ErrTooMuch = errors.New("there is more than is taken from a sandbox")
)

// MaxList bounds List, in entries.
const MaxList = 100_000

// Files are the files of a sandbox, with the rights of its user: what that one cannot reach, nobody reaches by them, by whatever links and races. A path is absolute, or
// below the sandbox's folder; a link at its end is followed, but where it says otherwise. Each method takes a context that bounds all of it, and starts a sandbox that was stopped.
type Files struct{ sb *Sandbox }

// Files are the sandbox's files.
func (sb *Sandbox) Files() *Files { return &Files{sb} }

// FileInfo is what is known of a file.
type FileInfo struct {
	Name     string      // without a folder; any bytes but zero and /
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
	m |= map[wire.FileType]fs.FileMode{wire.TypeFolder: fs.ModeDir, wire.TypeLink: fs.ModeSymlink, wire.TypeOther: fs.ModeIrregular}[i.Type]
	return FileInfo{Name: string(i.Name), Mode: m, Size: i.Size, Modified: i.Modified, UID: i.UID, GID: i.GID, Target: string(i.Target)}
}

// WriteOptions are how a file or folder is made.
type WriteOptions struct {
	// Mode has the permissions; nil keeps those of a file that is there, and gives a new file 0644, a new folder 0755.
	Mode *fs.FileMode
	// Parents makes folders above that are missing.
	Parents bool
}

func (o WriteOptions) query(path string) wireclient.Query {
	q := wireclient.Query{Path: path, Parents: o.Parents}
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

// use calls f with the connection; its error says of which sandbox.
func (f *Files) use(ctx context.Context, call func(*wireclient.Client) error) error {
	err := f.sb.use(ctx, call)
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return &kindError{err, fmt.Errorf("in sandbox %s: %s", f.sb.spec.Name, e.Text)}
	}
	return err
}

// Open is the content of a regular file. It reads io.EOF only after all of it. The caller closes it.
func (f *Files) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	var content *wireclient.Content
	err := f.use(ctx, func(c *wireclient.Client) (err error) {
		content, err = c.OpenFile(ctx, wireclient.Query{Path: path})
		return err
	})
	if err != nil {
		return nil, err
	}
	return reader{content}, nil
}

// reader has errors of this package.
type reader struct{ *wireclient.Content }

func (r reader) Read(p []byte) (int, error) {
	n, err := r.Content.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = public(err)
	}
	return n, err
}

// Write makes r, read to its end, the content of a file, whole or not at all. A file that is there is replaced by another of its name and
// owner, so that further names of it (hard links) keep what they had; through a link, the file that it leads to is.
func (f *Files) Write(ctx context.Context, path string, r io.Reader, o WriteOptions) error {
	return f.use(ctx, func(c *wireclient.Client) error { return c.WriteFile(ctx, o.query(path), r) })
}

// Stat is what is known of a file.
func (f *Files) Stat(ctx context.Context, path string) (FileInfo, error) {
	return f.stat(ctx, wireclient.Query{Path: path})
}

// Lstat is what is known of a file, or of the link at the path's end.
func (f *Files) Lstat(ctx context.Context, path string) (FileInfo, error) {
	return f.stat(ctx, wireclient.Query{Path: path, Link: true})
}

func (f *Files) stat(ctx context.Context, q wireclient.Query) (FileInfo, error) {
	var info wire.FileInfo
	err := f.use(ctx, func(c *wireclient.Client) (err error) {
		info, err = c.FileInfo(ctx, q)
		return err
	})
	return fileInfo(info), err
}

// List is what a folder has, in the order of the names' bytes; what is a link is told as one. More than MaxList is ErrTooMuch.
func (f *Files) List(ctx context.Context, path string) ([]FileInfo, error) {
	var list []wire.FileInfo
	err := f.use(ctx, func(c *wireclient.Client) (err error) {
		list, err = c.ListFiles(ctx, wireclient.Query{Path: path}, MaxList)
		return err
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

// Mkdir makes a folder. With Parents one that is there is no error.
func (f *Files) Mkdir(ctx context.Context, path string, o WriteOptions) error {
	return f.use(ctx, func(c *wireclient.Client) error { return c.MakeFolder(ctx, o.query(path)) })
}

// Remove removes a file, a link itself, or an empty folder; one that is not empty is ErrExists.
func (f *Files) Remove(ctx context.Context, path string) error {
	return f.use(ctx, func(c *wireclient.Client) error { return c.RemoveFile(ctx, wireclient.Query{Path: path}) })
}

// RemoveAll removes a file, a link itself, or a folder with all below it. That there is nothing is ErrNotFound.
func (f *Files) RemoveAll(ctx context.Context, path string) error {
	return f.use(ctx, func(c *wireclient.Client) error {
		return c.RemoveFile(ctx, wireclient.Query{Path: path, All: true})
	})
}

// TarOut writes a tar of a file, or of a folder and all below it, whose names begin with the path's last one. A link at the path's end is followed, links
// below are links. Devices, pipes and sockets are left out. Where some files cannot be read, the tar has the others, and the error says so. Who unpacks it must
// not trust it: CopyOut does not.
func (f *Files) TarOut(ctx context.Context, path string, w io.Writer) error {
	return f.use(ctx, func(c *wireclient.Client) error {
		content, err := c.TarOut(ctx, wireclient.Query{Path: path})
		if err != nil {
			return err
		}
		defer content.Close()
		_, err = io.Copy(w, content)
		return err
	})
}

// TarIn unpacks a tar in a folder. Nothing of it is written outside of the folder, nor through links in it; devices and pipes are left out. What it has belongs to
// the sandbox's user. After an error, some of it may be there, each file whole.
func (f *Files) TarIn(ctx context.Context, path string, r io.Reader) error {
	_, err := f.tarIn(ctx, path, r)
	return err
}

func (f *Files) tarIn(ctx context.Context, path string, r io.Reader) (wire.End, error) {
	var e wire.End
	err := f.use(ctx, func(c *wireclient.Client) (err error) {
		e, err = c.TarIn(ctx, wireclient.Query{Path: path}, r)
		return err
	})
	return e, err
}

// SFTP is a connection to a server of SFTP for these files, whose relative paths are below the sandbox's folder. ctx bounds the attempt, not the connection.
func (f *Files) SFTP(ctx context.Context) (net.Conn, error) {
	var conn net.Conn
	err := f.use(ctx, func(c *wireclient.Client) (err error) {
		conn, err = c.SFTP(ctx, wireclient.Query{Path: "."})
		return err
	})
	return conn, err
}

// ChangeType is what happened to a file.
type ChangeType string

// The types of changes.
const (
	Made    ChangeType = "made"    // or moved here
	Written ChangeType = "written" // some of it
	Gone    ChangeType = "gone"    // or moved away
	Rights  ChangeType = "rights"  // permissions, owner or times
	// Missed means that there was more to tell than could be: look at all of it.
	Missed ChangeType = "missed"
)

// Change is one of a Watch.
type Change struct {
	Type   ChangeType
	Path   string // below what is watched; "" is that itself
	Folder bool
}

// Watch is what changes in a folder, or of a file. Its methods are for one goroutine.
type Watch struct {
	w *wireclient.Watch
}

// Watch watches a folder, with all also those below it, or a file: whatever changes after it returns is told, by whomever. ctx ends it. The caller calls Close.
func (f *Files) Watch(ctx context.Context, path string, all bool) (*Watch, error) {
	var w *wireclient.Watch
	err := f.use(ctx, func(c *wireclient.Client) (err error) {
		w, err = c.Watch(ctx, wireclient.Query{Path: path, All: all})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Watch{w}, nil
}

// Next waits for a change. What is watched and gone ends it with io.EOF.
func (w *Watch) Next() (Change, error) {
	c, err := w.w.Next()
	if err != nil {
		return Change{}, public(err)
	}
	kind := map[wire.ChangeType]ChangeType{wire.ChangeMade: Made, wire.ChangeWritten: Written, wire.ChangeGone: Gone, wire.ChangeRights: Rights, wire.ChangeLost: Missed}[c.Type]
	return Change{kind, string(c.Path), c.Folder}, nil
}

// Close ends it.
func (w *Watch) Close() error { return w.w.Close() }
