package localrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxTreeFile bounds a file that is read from a tree into memory.
const maxTreeFile = 16 << 20

// maxTreeList bounds how many entries of one directory are listed.
const maxTreeList = 20_000

// maxTreePath bounds a path, in bytes, as Linux does.
const maxTreePath = 4096

// Tree returns the files of a commit, read from the repository's objects. Links and submodules are irregular files, which cannot be
// opened. Calls run git, one at a time, until ctx ends.
func (r *Repo) Tree(ctx context.Context, rev string) (fs.FS, error) {
	asked, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	commit, err := gitOut(asked, r.Path, "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("read files of %s: %w", rev, err)
	}
	return &tree{ctx: ctx, repo: r.Path, commit: strings.TrimSpace(commit), dirs: map[string][]fs.DirEntry{}}, nil
}

// tree implements fs.FS, fs.ReadDirFS and fs.StatFS.
type tree struct {
	ctx          context.Context // fs.FS methods have no parameter for it
	repo, commit string
	dirs         map[string][]fs.DirEntry // that were listed
}

type entry struct {
	name, object string
	mode         fs.FileMode
	size         int64
}

func (e *entry) Name() string               { return e.name }
func (e *entry) IsDir() bool                { return e.mode.IsDir() }
func (e *entry) Type() fs.FileMode          { return e.mode.Type() }
func (e *entry) Info() (fs.FileInfo, error) { return e, nil }
func (e *entry) Size() int64                { return e.size }
func (e *entry) Mode() fs.FileMode          { return e.mode }
func (e *entry) ModTime() time.Time         { return time.Time{} }
func (e *entry) Sys() any                   { return nil }

func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	if list, known := t.dirs[name]; known {
		return list, nil
	}
	ctx, cancel := context.WithTimeout(t.ctx, gitTimeout)
	defer cancel()
	at := t.commit + ":"
	if name != "." {
		// Do not run git for missing directories: a file can name any number of them.
		if e, err := t.find(name); err != nil || !e.IsDir() {
			return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
		}
		at += name
	}
	if name == "." && t.readAll(ctx) {
		return t.dirs[name], nil
	}
	list := []fs.DirEntry{}
	err := Git(t.repo).Each(ctx, func(line string) {
		if e := parseEntry(line); e != nil && len(list) < maxTreeList {
			list = append(list, e)
		}
	}, "ls-tree", "-z", "--long", "--end-of-options", at)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	// Git sorts directories as if their names ended in a slash.
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	t.dirs[name] = list
	return list, nil
}

// readAll lists all directories by one call of git. It reports false for a tree of more than maxTreeList entries.
func (t *tree) readAll(ctx context.Context) bool {
	all := map[string][]fs.DirEntry{".": {}}
	n := 0
	err := Git(t.repo).Each(ctx, func(line string) {
		e := parseEntry(line)
		if n++; e == nil || n > maxTreeList {
			return
		}
		dir := path.Dir(e.name)
		e.name = path.Base(e.name)
		all[dir] = append(all[dir], e)
		if e.IsDir() {
			all[path.Join(dir, e.name)] = []fs.DirEntry{}
		}
	}, "ls-tree", "-r", "-t", "-z", "--long", "--end-of-options", t.commit)
	if err != nil || n > maxTreeList {
		return false
	}
	for dir, list := range all {
		slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		t.dirs[dir] = list
	}
	return true
}

// parseEntry parses a line of `git ls-tree --long`: mode, type, object and size, a tab, the name.
func parseEntry(line string) *entry {
	meta, name, ok := strings.Cut(line, "\t")
	fields := strings.Fields(meta)
	if !ok || len(fields) != 4 {
		return nil
	}
	e := &entry{name: name, object: fields[2]}
	switch fields[0] {
	case "040000":
		e.mode = fs.ModeDir | 0o755
	case "100644", "100755":
		e.mode = 0o644
	default: // a link or a submodule
		e.mode = fs.ModeIrregular
	}
	e.size, _ = strconv.ParseInt(fields[3], 10, 64) // "-" for a directory
	return e
}

func (t *tree) Stat(name string) (fs.FileInfo, error) {
	if name == "." {
		return &entry{name: ".", mode: fs.ModeDir | 0o755}, nil
	}
	e, err := t.find(name)
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return e, nil
}

func (t *tree) find(name string) (*entry, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	if len(name) > maxTreePath {
		return nil, fs.ErrNotExist
	}
	list, err := t.ReadDir(path.Dir(name))
	if err != nil {
		return nil, fs.ErrNotExist
	}
	i, found := slices.BinarySearchFunc(list, path.Base(name), func(d fs.DirEntry, name string) int { return strings.Compare(d.Name(), name) })
	if found {
		if e, ok := list[i].(*entry); ok {
			return e, nil
		}
	}
	return nil, fs.ErrNotExist
}

func (t *tree) Open(name string) (fs.File, error) {
	if name == "." {
		list, err := t.ReadDir(name)
		return &opened{entry: &entry{name: ".", mode: fs.ModeDir | 0o755}, list: list}, err
	}
	e, err := t.find(name)
	switch {
	case err != nil:
	case e.IsDir():
		list, err := t.ReadDir(name)
		return &opened{entry: e, list: list}, err
	case !e.mode.IsRegular():
		err = errors.New("not a regular file")
	case e.size > maxTreeFile:
		err = errors.New("larger than 16 MB")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	ctx, cancel := context.WithTimeout(t.ctx, gitTimeout)
	defer cancel()
	content, err := Git(t.repo).Output(ctx, "cat-file", "blob", e.object)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &opened{entry: e, Reader: bytes.NewReader(content)}, nil
}

type opened struct {
	*bytes.Reader
	entry *entry
	list  []fs.DirEntry // unread entries of a directory
}

func (o *opened) Stat() (fs.FileInfo, error) { return o.entry, nil }
func (o *opened) Close() error               { return nil }

func (o *opened) Read(b []byte) (int, error) {
	if o.Reader == nil {
		return 0, &fs.PathError{Op: "read", Path: o.entry.name, Err: errors.New("is a directory")}
	}
	return o.Reader.Read(b)
}

func (o *opened) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(o.list) {
		if n > 0 && len(o.list) == 0 {
			return nil, io.EOF
		}
		n = len(o.list)
	}
	var part []fs.DirEntry
	part, o.list = o.list[:n], o.list[n:]
	return part, nil
}

// WorkTree returns the files of a directory as a commit would have them: a repository inside of it, such as a submodule, is an
// irregular file without content.
func WorkTree(root *os.Root) fs.FS { return workTree{root.FS()} }

// workTree implements fs.StatFS, fs.ReadDirFS and fs.ReadLinkFS.
type workTree struct{ files fs.FS }

// inner returns the inner repository that is name or contains it; "" if there is none.
func (t workTree) inner(name string) string {
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' || name == "." {
			continue
		}
		if _, err := fs.Lstat(t.files, path.Join(name[:i], ".git")); err == nil {
			return name[:i]
		}
	}
	return ""
}

// own returns an error for a path in an inner repository.
func (t workTree) own(op, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if t.inner(name) != "" {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return nil
}

func (t workTree) Open(name string) (fs.File, error) {
	if err := t.own("open", name); err != nil {
		return nil, err
	}
	return t.files.Open(name)
}

func (t workTree) Stat(name string) (fs.FileInfo, error) { return t.stat("stat", name, fs.Stat) }

func (t workTree) Lstat(name string) (fs.FileInfo, error) { return t.stat("lstat", name, fs.Lstat) }

func (t workTree) stat(op, name string, of func(fs.FS, string) (fs.FileInfo, error)) (fs.FileInfo, error) {
	if fs.ValidPath(name) && t.inner(name) == name {
		return &entry{name: path.Base(name), mode: fs.ModeIrregular}, nil
	}
	if err := t.own(op, name); err != nil {
		return nil, err
	}
	return of(t.files, name)
}

func (t workTree) ReadLink(name string) (string, error) {
	if err := t.own("readlink", name); err != nil {
		return "", err
	}
	return fs.ReadLink(t.files, name)
}

func (t workTree) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := t.own("readdir", name); err != nil {
		return nil, err
	}
	list, err := fs.ReadDir(t.files, name)
	for i, e := range list {
		if at := path.Join(name, e.Name()); e.IsDir() && t.inner(at) != "" {
			list[i] = &entry{name: e.Name(), mode: fs.ModeIrregular}
		}
	}
	return list, err
}
