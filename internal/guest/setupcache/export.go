package setupcache

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cachevolume"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// An exported snapshot is these entries of a tar stream: ID/meta.json, ID/index if there is one, ID/DIR/… for each directory, and
// ID/sum, the checksum of the other entries, which is last. Snapshots follow those below them.
const sumFile = "sum"

// xattrPrefix begins the names of extended attributes in a tar.
const xattrPrefix = "SCHILY.xattr."

// register makes a run with that id, so that other boxes keep the snapshots that it uses, and calls do with the lock. The caller
// calls leave when there is no error.
func (u *Maintainer) register(ctx context.Context, id string, do func(entries) error) (*cachevolume.Dir, error) {
	d := &cachevolume.Dir{Base: filepath.Join(u.Dir, format), ID: id, Grace: grace, Log: u.Log}
	if err := d.Open("kept"); err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	err := d.Exclusive(ctx, func() error {
		if _, err := d.Register(); err != nil {
			return err
		}
		return do(entries{d})
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("snapshots: %w", err), d.Leave())
	}
	return d, nil
}

// leave removes the run with its files.
func leave(d *cachevolume.Dir) error {
	if err := d.Leave(); err != nil {
		return err
	}
	trash, err := d.Trash()
	if err == nil {
		d.EmptyTrash(trash)
	}
	return err
}

// Export writes the snapshots with these ids, and those below them, as a tar stream to what open returns.
func (u *Maintainer) Export(ctx context.Context, r *workorder.CacheReport, id string, ids []string,
	open func(context.Context) (io.WriteCloser, error),
) (err error) {
	dirs := map[string]string{} // of the projects, by snapshot
	var all []Meta
	d, err := u.register(ctx, id, func(s entries) error {
		all, err = s.wanted(ids, dirs)
		if err != nil {
			return err
		}
		return os.WriteFile(s.dir.Path("runs", id, usesFile), []byte(strings.Join(slices.Collect(maps.Keys(dirs)), "\n")), 0o600)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(d)) }()
	out, err := open(ctx)
	if err != nil {
		return err
	}
	defer out.Close()
	buffered := bufio.NewWriterSize(out, 1<<20)
	w := tar.NewWriter(buffered)
	for _, m := range all {
		x := exporter{ctx: ctx, w: w, id: m.ID, sum: sha256.New(), links: map[[2]uint64]string{}}
		if err := x.snapshot(&m, filepath.Join(dirs[m.ID], m.ID)); err != nil {
			return fmt.Errorf("export the setup cache %s: %w", m.ID, err)
		}
		one := m.report(dirs[m.ID])
		one.Bytes = x.bytes
		r.Moved = append(r.Moved, one)
	}
	return errors.Join(w.Close(), buffered.Flush())
}

// wanted returns the snapshots with these ids and those below them, oldest first, and adds the directories of their projects.
func (s entries) wanted(ids []string, dirs map[string]string) (all []Meta, err error) {
	err = s.each(func(dir string, in []Meta) error {
		needed := map[string]bool{}
		for _, m := range in { // a snapshot is newer than those below it
			if !slices.Contains(ids, m.ID) && !needed[m.ID] {
				continue
			}
			for _, id := range m.needs() {
				needed[id] = true
			}
			if err := m.movable(); err != nil {
				return fmt.Errorf("the setup cache %s: %w", m.ID, err)
			}
			dirs[m.ID], all = dir, append(all, m)
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b Meta) int { return a.Made.Compare(b.Made) })
	for _, id := range ids {
		if dirs[id] == "" && err == nil {
			err = fmt.Errorf("the setup cache %s is no longer there", id)
		}
	}
	return all, err
}

// movable refuses a snapshot whose key is unknown, or has a credential.
func (m *Meta) movable() error {
	if m.Image == "" || m.Branch == "" {
		return errors.New("it was made by an older version of this program")
	}
	u, err := url.Parse(m.Project)
	if err == nil && u.User != nil {
		if _, secret := u.User.Password(); secret || strings.HasPrefix(u.Scheme, "http") {
			return errors.New("the address of its repository has a credential")
		}
	}
	return nil
}

// exporter writes one snapshot.
type exporter struct {
	ctx   context.Context
	w     *tar.Writer
	id    string
	sum   hash.Hash
	links map[[2]uint64]string // names of files with several links
	bytes int64
}

func (x *exporter) snapshot(m *Meta, dir string) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = x.write(&tar.Header{Typeflag: tar.TypeReg, Name: metaFile, Mode: 0o600, Size: int64(len(b))}, strings.NewReader(string(b)))
	}
	if err != nil {
		return err
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err = errors.Join(err, context.Cause(x.ctx)); err != nil {
			return err
		}
		name := strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
		// Results of checks hold on this machine only.
		if name == "" || name == metaFile || strings.HasPrefix(name, attachPrefix) {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return x.file(path, name, info)
	})
	if err != nil {
		return err
	}
	b = fmt.Appendf(nil, "%x", x.sum.Sum(nil))
	return x.write(&tar.Header{Typeflag: tar.TypeReg, Name: sumFile, Mode: 0o600, Size: int64(len(b))}, strings.NewReader(string(b)))
}

// file writes one file of a snapshot. Sockets and named pipes are of processes that have ended.
func (x *exporter) file(path, name string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("stat %s: unexpected result", name)
	}
	h := &tar.Header{Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: info.ModTime()}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	case unix.S_IFCHR:
		if st.Rdev != 0 {
			return fmt.Errorf("%s is a device", name)
		}
		h.Typeflag = tar.TypeChar // hides a file of a layer below
	case unix.S_IFREG:
		ino := [2]uint64{st.Dev, st.Ino}
		if first := x.links[ino]; first != "" {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return x.write(h, nil)
		}
		if st.Nlink > 1 {
			x.links[ino] = name
		}
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	default:
		return nil
	}
	attrs, err := attributes(path)
	if err != nil {
		return fmt.Errorf("read the attributes of %s: %w", name, err)
	}
	for pair := range slices.Chunk(attrs, 2) {
		if movedAttribute(pair[0]) {
			if h.PAXRecords == nil {
				h.PAXRecords = map[string]string{}
			}
			h.PAXRecords[xattrPrefix+pair[0]] = pair[1]
		}
	}
	if h.Typeflag != tar.TypeReg {
		return x.write(h, nil)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return x.write(h, f)
}

// movedAttribute reports whether an extended attribute holds on other machines: others of an overlay name inodes.
func movedAttribute(name string) bool {
	return name == "trusted.overlay.opaque" || name == "trusted.overlay.redirect" || strings.HasPrefix(name, "user.")
}

func (x *exporter) write(h *tar.Header, content io.Reader) error {
	digest(x.sum, h)
	h.Format, h.Name = tar.FormatPAX, x.id+"/"+h.Name
	if err := x.w.WriteHeader(h); err != nil || content == nil {
		return err
	}
	n, err := io.Copy(io.MultiWriter(x.w, x.sum), content)
	x.bytes += n
	return err
}

// digest adds an entry without its content to a checksum.
func digest(sum hash.Hash, h *tar.Header) {
	mtime := int64(0)
	if !h.ModTime.IsZero() {
		mtime = h.ModTime.UnixNano()
	}
	fmt.Fprintf(sum, "%q %c %o %d %d %d %d %q", h.Name, h.Typeflag, h.Mode, h.Uid, h.Gid, h.Size, mtime, h.Linkname)
	for _, name := range slices.Sorted(maps.Keys(h.PAXRecords)) {
		if strings.HasPrefix(name, xattrPrefix) {
			fmt.Fprintf(sum, " %q=%q", name, h.PAXRecords[name])
		}
	}
	fmt.Fprintln(sum)
}
