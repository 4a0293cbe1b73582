package setupcache

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cachevolume"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var (
	validID  = lazyregexp.New(`^[a-z2-7]{12}$`)
	validDir = lazyregexp.New(`^[a-z][a-z0-9-]*$`)
)

// maxMeta bounds a description, in bytes.
const maxMeta = 1 << 20

// Import adds the snapshots of a stream of Export. Each appears whole or not at all; those that are there already stay as they
// are. The report has all that were refused. repo, if set, replaces the repository of the snapshots.
func (u *Maintainer) Import(ctx context.Context, r *workorder.CacheReport, id, repo string, in io.Reader) (err error) {
	d, err := u.register(ctx, id, func(entries) error { return nil })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(d)) }()
	i := importer{ctx: ctx, dir: d, repo: repo, report: r}
	for tr := tar.NewReader(in); ; {
		h, err := tr.Next()
		if err = cmp.Or(err, context.Cause(ctx)); err != nil {
			i.end(errIncomplete)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil // what is missing is refused
			}
			return fmt.Errorf("read the archive: %w", err)
		}
		i.entry(h, tr)
	}
}

var (
	errIncomplete = errors.New("its end is missing in the archive")
	errDamaged    = errors.New("it is damaged: its checksum differs")
)

// importer unpacks one snapshot after the other in the directory of its run.
type importer struct {
	ctx    context.Context
	dir    *cachevolume.Dir
	repo   string
	report *workorder.CacheReport
	uses   []string
	*incoming
}

// incoming is a snapshot that is being unpacked.
type incoming struct {
	Meta
	root  *os.Root
	sum   hash.Hash
	err   error // why it is refused
	bytes int64
	dirs  []*tar.Header // they get their times at the end
}

// entry handles one entry of the stream. Reasons to refuse a snapshot are noted.
func (i *importer) entry(h *tar.Header, content io.Reader) {
	id, name, _ := strings.Cut(h.Name, "/")
	if i.incoming == nil || i.ID != id {
		i.end(errIncomplete)
		i.begin(id)
	}
	if i.err != nil {
		return
	}
	h.Name = name
	if name == sumFile {
		b, err := io.ReadAll(io.LimitReader(content, sha256.BlockSize+1))
		if err == nil && string(b) != fmt.Sprintf("%x", i.sum.Sum(nil)) {
			err = errDamaged
		}
		if err == nil {
			err = i.publish()
		}
		i.end(err)
		return
	}
	digest(i.sum, h)
	body := io.TeeReader(content, i.sum)
	if name == metaFile {
		i.err = i.describe(body)
		return
	}
	i.err = i.file(h, body)
}

func (i *importer) begin(id string) {
	i.incoming = &incoming{Meta: Meta{ID: id}, sum: sha256.New()}
	if !validID.MatchString(id) {
		i.err = errors.New("invalid name")
		return
	}
	at := filepath.Join(i.dir.Run(), id)
	if i.err = os.Mkdir(at, 0o700); i.err == nil {
		i.root, i.err = os.OpenRoot(at)
	}
}

// end reports the current snapshot, if there is one; err is why it is refused.
func (i *importer) end(err error) {
	if i.incoming == nil {
		return
	}
	one := workorder.CacheSnapshot{ID: i.ID, Project: i.Project, Image: i.Image, MadeAt: i.Made, Below: i.depth() - 1, Bytes: i.bytes}
	if err = cmp.Or(i.err, err); err == nil {
		i.report.Moved = append(i.report.Moved, one)
	} else {
		one.Problem = err.Error()
		i.report.Refused = append(i.report.Refused, one)
	}
	if i.root != nil {
		_ = i.root.Close()
		_ = os.RemoveAll(filepath.Join(i.dir.Run(), i.ID)) // otherwise it goes with the run
	}
	i.incoming = nil
}

func (i *importer) describe(in io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(in, maxMeta+1))
	if err != nil {
		return err
	}
	m := Meta{ID: i.ID}
	if err := json.Unmarshal(b, &m); err != nil || len(b) > maxMeta {
		return fmt.Errorf("its description is invalid: %w", cmp.Or(err, errors.New("too long")))
	}
	if i.repo != "" {
		m.Project = i.repo
	}
	i.Meta = m
	if err := m.movable(); err != nil {
		return err
	}
	for name, below := range m.Layers {
		if !validDir.MatchString(name) || slices.ContainsFunc(below, func(id string) bool { return !validID.MatchString(id) }) {
			return errors.New("its description is invalid")
		}
	}
	if b, err = json.Marshal(m); err == nil {
		err = i.root.WriteFile(metaFile, b, 0o600)
	}
	return err
}

// file unpacks one file. Names, and links on the way, cannot lead out of the snapshot's directory.
func (i *importer) file(h *tar.Header, content io.Reader) error {
	name := path.Clean(h.Name)
	top, _, below := strings.Cut(name, "/")
	_, known := i.Layers[top]
	isDir := known && (below || h.Typeflag == tar.TypeDir)
	if !isDir && (name != indexFile || h.Typeflag != tar.TypeReg) {
		return fmt.Errorf("unexpected entry %q", h.Name)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(i.dir.Base, &st); err != nil {
		return fmt.Errorf("read the free disk space: %w", err)
	}
	if free := int64(st.Bavail) * st.Bsize; free-h.Size < lowDisk {
		return fmt.Errorf("the disk has %d MiB free, %d are required", free>>20, (lowDisk+h.Size)>>20)
	}
	if err := i.create(name, h, content); err != nil {
		return fmt.Errorf("unpack %q: %w", h.Name, err)
	}
	return nil
}

func (i *importer) create(name string, h *tar.Header, content io.Reader) error {
	var f *os.File
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		i.dirs = append(i.dirs, h)
		if err = i.root.Mkdir(name, 0o700); err == nil {
			f, err = i.root.Open(name)
		}
	case tar.TypeReg:
		if f, err = i.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			n, cerr := io.Copy(f, content)
			i.bytes, err = i.bytes+n, cerr
		}
	case tar.TypeLink:
		return i.root.Link(h.Linkname, name)
	case tar.TypeSymlink:
		return errors.Join(i.root.Symlink(h.Linkname, name), i.root.Lchown(name, h.Uid, h.Gid))
	case tar.TypeChar:
		if h.Devmajor != 0 || h.Devminor != 0 {
			return errors.New("it is a device")
		}
		var parent *os.File
		if parent, err = i.root.Open(path.Dir(name)); err == nil {
			err = errors.Join(unix.Mknodat(int(parent.Fd()), path.Base(name), unix.S_IFCHR, 0), parent.Close())
		}
		return err
	default:
		return fmt.Errorf("unexpected type %q", h.Typeflag)
	}
	if f == nil {
		return err
	}
	defer f.Close()
	if err == nil {
		err = errors.Join(f.Chown(h.Uid, h.Gid), f.Chmod(h.FileInfo().Mode()))
	}
	for key, value := range h.PAXRecords {
		if attr, ok := strings.CutPrefix(key, xattrPrefix); ok && movedAttribute(attr) && err == nil {
			err = unix.Fsetxattr(int(f.Fd()), attr, []byte(value), 0)
		}
	}
	if h.Typeflag == tar.TypeReg && err == nil {
		err = i.root.Chtimes(name, h.ModTime, h.ModTime)
	}
	return err
}

// publish moves a whole snapshot to the others.
func (i *importer) publish() error {
	if i.Key == "" || i.Image == "" {
		return errors.New("its description is missing")
	}
	for _, h := range slices.Backward(i.dirs) {
		if err := i.root.Chtimes(path.Clean(h.Name), h.ModTime, h.ModTime); err != nil {
			return err
		}
	}
	return i.dir.Exclusive(i.ctx, func() error {
		project := i.dir.Path("kept", projectDir(i.Project, i.Branch, i.Image))
		if err := os.MkdirAll(project, 0o700); err != nil {
			return err
		}
		for _, id := range i.needs() {
			if _, err := os.Lstat(filepath.Join(project, id, metaFile)); id != i.ID && err != nil {
				return fmt.Errorf("it needs the setup cache %s, which is not there", id)
			}
		}
		i.uses = append(i.uses, i.ID)
		if err := os.WriteFile(filepath.Join(i.dir.Run(), usesFile), []byte(strings.Join(i.uses, "\n")), 0o600); err != nil {
			return err
		}
		to, now := filepath.Join(project, i.ID), time.Now()
		if _, err := os.Lstat(filepath.Join(to, metaFile)); !errors.Is(err, fs.ErrNotExist) {
			return err // imported before
		}
		if err := os.Rename(filepath.Join(i.dir.Run(), i.ID), to); err != nil {
			return err
		}
		return os.Chtimes(to, now, now)
	})
}
