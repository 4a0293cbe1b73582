package localrepo

import (
	"io/fs"
	"os"
	"path"
)

// WorkTree is the files of a folder as they would be in a commit: a repository inside of it, such as a submodule, is a file of no regular
// kind, and nothing below it is there.
func WorkTree(root *os.Root) fs.FS { return workTree{root.FS()} }

// workTree implements fs.StatFS, fs.ReadDirFS and fs.ReadLinkFS.
type workTree struct{ files fs.FS }

// inner is the repository that name is or lies in; empty for one of the work tree's own files.
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

// own refuses what lies in another repository.
func (t workTree) own(op, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if t.inner(name) != "" {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return nil
}

// Open implements fs.FS.
func (t workTree) Open(name string) (fs.File, error) {
	if err := t.own("open", name); err != nil {
		return nil, err
	}
	return t.files.Open(name)
}

// Stat implements fs.StatFS.
func (t workTree) Stat(name string) (fs.FileInfo, error) { return t.stat("stat", name, fs.Stat) }

// Lstat implements fs.ReadLinkFS.
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

// ReadLink implements fs.ReadLinkFS.
func (t workTree) ReadLink(name string) (string, error) {
	if err := t.own("readlink", name); err != nil {
		return "", err
	}
	return fs.ReadLink(t.files, name)
}

// ReadDir implements fs.ReadDirFS.
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
