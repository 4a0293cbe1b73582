package git

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's own ids
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Objects that we write ourselves are written without git: a process costs milliseconds, and a short task waits for a dozen.

// InitBare creates an empty bare repository, unless dir is one.
func InitBare(dir string) error {
	head := filepath.Join(dir, "HEAD")
	if _, err := os.Lstat(head); err == nil {
		return nil
	}
	var err error
	for _, name := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	config := "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
	// git takes the directory for a repository once it has HEAD.
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o644))
	if err == nil {
		err = os.WriteFile(head, []byte("ref: refs/heads/main\n"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("create repository: %w", err)
	}
	return nil
}

// WriteBlob adds a file's content to a bare repository, and returns its id.
func (r Repo) WriteBlob(content []byte) (id string, err error) { return r.writeObject("blob", content) }

// WriteCommit adds a commit of files, which are blobs by path, to a bare repository. who is its author, as NAME <ADDRESS>. An empty
// parent is none.
func (r Repo) WriteCommit(files map[string]string, who, message, parent string) (id string, err error) {
	tree, err := r.writeTree(files)
	if err != nil {
		return "", err
	}
	at := fmt.Sprintf("%s %d +0000", who, time.Now().Unix())
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", tree)
	if parent != "" {
		fmt.Fprintf(&b, "parent %s\n", parent)
	}
	fmt.Fprintf(&b, "author %s\ncommitter %s\n\n%s\n", at, at, message)
	return r.writeObject("commit", []byte(b.String()))
}

func (r Repo) writeTree(files map[string]string) (id string, err error) {
	below, entries := map[string]map[string]string{}, map[string][]byte{}
	add := func(mode, key, name, id string) error {
		raw, err := hex.DecodeString(id)
		entries[key] = append([]byte(mode+" "+name+"\x00"), raw...)
		return err
	}
	for path, blob := range files {
		dir, rest, nested := strings.Cut(path, "/")
		if nested {
			if below[dir] == nil {
				below[dir] = map[string]string{}
			}
			below[dir][rest] = blob
		} else if err := add("100644", path, path, blob); err != nil {
			return "", err
		}
	}
	for dir, inside := range below {
		tree, err := r.writeTree(inside)
		if err == nil {
			err = add("40000", dir+"/", dir, tree) // a directory is sorted as if its name ended in a slash
		}
		if err != nil {
			return "", err
		}
	}
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		b = append(b, entries[key]...)
	}
	return r.writeObject("tree", b)
}

func (r Repo) writeObject(kind string, content []byte) (id string, err error) {
	head := fmt.Appendf(nil, "%s %d\x00", kind, len(content))
	h := sha1.New() //nolint:gosec // git's own ids
	h.Write(head)
	h.Write(content)
	id = hex.EncodeToString(h.Sum(nil))
	dir := filepath.Join(r.Dir, "objects", id[:2])
	path := filepath.Join(dir, id[2:])
	if _, err := os.Lstat(path); err == nil {
		return id, nil
	}
	var b bytes.Buffer
	z, err := zlib.NewWriterLevel(&b, zlib.BestSpeed)
	if err == nil {
		_, err = z.Write(append(head, content...))
	}
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = writeNew(path, b.Bytes())
	}
	if err != nil {
		return "", fmt.Errorf("write a %s: %w", kind, err)
	}
	return id, nil
}

// writeNew writes a file in one step. Another process may write the same one.
func writeNew(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(filepath.Dir(path)), "tmp_obj_") // git removes a left one
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o444), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
