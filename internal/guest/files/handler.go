package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/archive"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wirehttp"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// handler answers requests with the rights of its process.
type handler struct{ dir string }

func (h handler) routes() map[string]func(http.ResponseWriter, *http.Request, string) error {
	return map[string]func(http.ResponseWriter, *http.Request, string) error{
		"GET " + wire.PathFiles:      h.read,
		"PUT " + wire.PathFiles:      h.write,
		"DELETE " + wire.PathFiles:   h.remove,
		"GET " + wire.PathFilesInfo:  h.info,
		"GET " + wire.PathFilesList:  h.list,
		"POST " + wire.PathFilesDir:  h.directory,
		"GET " + wire.PathFilesTar:   h.pack,
		"PUT " + wire.PathFilesTar:   h.unpack,
		"GET " + wire.PathWatch:      h.watch,
		"POST " + wire.PathFilesSFTP: h.sftp,
	}
}

// Patterns returns the patterns of the requests that Files answers.
func Patterns() []string { return slices.Collect(maps.Keys(handler{}.routes())) }

func newHandler(dir string) http.Handler {
	mux := http.NewServeMux()
	h := handler{dir}
	for pattern, answer := range h.routes() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			name := r.URL.Query().Get(wire.QueryPath)
			if name == "" || strings.ContainsRune(name, 0) {
				wirehttp.Error(w, &wire.Error{Code: wire.CodeBadRequest, Text: fmt.Sprintf("%q is not a path", name)})
				return
			}
			if !path.IsAbs(name) {
				name = h.dir + "/" + name // not joined: x/.. is a different directory if x is a link
			}
			if err := answer(w, r, name); err != nil {
				wirehttp.Error(w, errorOf(err))
			}
		})
	}
	return mux
}

// errorOf returns the wire error for a file error, with its code.
func errorOf(err error) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	code := wire.CodeFailed
	for _, row := range []struct {
		code wire.Code
		errs []error
	}{
		{wire.CodeFileType, []error{syscall.EISDIR, syscall.ENOTDIR, syscall.ENXIO, archive.ErrNotRegular}},
		{wire.CodeExists, []error{fs.ErrExist}},
		{wire.CodeNotFound, []error{fs.ErrNotExist}},
		{wire.CodeDenied, []error{fs.ErrPermission, syscall.EROFS}},
		{wire.CodeExhausted, []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE}},
		{wire.CodeBadRequest, []error{syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ELOOP, archive.ErrOutsideRoot, archive.ErrArchive}},
	} {
		if slices.ContainsFunc(row.errs, func(e error) bool { return errors.Is(err, e) }) {
			code = row.code
			break
		}
	}
	return &wire.Error{Code: code, Text: err.Error()}
}

func yes(r *http.Request, name string) bool { return r.URL.Query().Get(name) == "1" }

// mode returns the request's mode; nil if it has none.
func mode(r *http.Request) (*fs.FileMode, error) {
	text := r.URL.Query().Get(wire.QueryMode)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > wire.MaxMode {
		return nil, &wire.Error{Code: wire.CodeBadRequest, Text: fmt.Sprintf("%q is not a file mode", text)}
	}
	m := fs.FileMode(n) & fs.ModePerm
	for bit, flag := range map[uint64]fs.FileMode{
		syscall.S_ISUID: fs.ModeSetuid, syscall.S_ISGID: fs.ModeSetgid, syscall.S_ISVTX: fs.ModeSticky,
	} {
		if n&bit != 0 {
			m |= flag
		}
	}
	return &m, nil
}

// above returns the directory of a path and its last element.
func above(name string) (dir, last string) {
	name = strings.TrimRight(name, "/")
	i := strings.LastIndexByte(name, '/') + 1
	return name[:i], name[i:]
}

func (h handler) read(w http.ResponseWriter, r *http.Request, name string) error {
	f, err := archive.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	// Some kernel files block for a while: stop reading if the client has gone.
	defer context.AfterFunc(r.Context(), func() { _ = f.Close() })()
	w.Header().Set("Trailer", wire.TrailerEnd)
	w.Header().Set("Content-Type", "application/octet-stream")
	n, err := io.CopyBuffer(w, struct{ io.Reader }{f}, make([]byte, copyBuffer))
	end(w, wire.TransferSummary{Files: 1, Bytes: n}, err)
	return nil
}

// end finishes an answer that began as a success.
func end(w http.ResponseWriter, e wire.TransferSummary, err error) {
	if err != nil {
		e.Error = errorOf(err)
	}
	if t, err := e.Trailer(); err == nil { // without the trailer the client knows that the answer is incomplete
		w.Header().Set(wire.TrailerEnd, t)
	}
}

func (h handler) write(_ http.ResponseWriter, r *http.Request, name string) error {
	perm, err := mode(r)
	if err != nil {
		return err
	}
	if dir, _ := above(name); yes(r, wire.QueryParents) && dir != "" {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	target, there, err := target(name)
	if err != nil {
		return err
	}
	dir, _ := above(target)
	temp := dir + archive.TempName()
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // private until it is complete
	if err != nil {
		return err
	}
	if there == nil && perm == nil {
		fresh := fs.FileMode(0o666 &^ newMask)
		perm = &fresh
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, r.Body, make([]byte, copyBuffer))
	if err == nil && there != nil {
		// It replaces another file, and takes over its attributes. Only root can give it to that file's owner.
		if st, ok := there.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
			err = f.Chown(int(st.Uid), int(st.Gid))
		}
		if perm == nil {
			kept := there.Mode().Perm()
			perm = &kept
		}
	}
	if err == nil && perm != nil {
		err = f.Chmod(*perm)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, target)
	}
	if err != nil {
		_ = os.Remove(temp) // best effort: the first error is reported
	}
	return err
}

// maxLinks bounds a chain of links, like the kernel.
const maxLinks = 40

// target returns the file that a write to a path reaches, with links followed, and its info; nil if it is missing.
func target(name string) (string, fs.FileInfo, error) {
	for range maxLinks {
		_, last := above(name)
		if last == "" || last == "." || last == ".." || strings.HasSuffix(name, "/") {
			return "", nil, &fs.PathError{Op: "write", Path: name, Err: syscall.EISDIR}
		}
		info, err := os.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil, nil
		case err != nil:
			return "", nil, err
		case info.IsDir():
			return "", nil, &fs.PathError{Op: "write", Path: name, Err: syscall.EISDIR}
		case info.Mode().IsRegular():
			return name, info, nil
		case info.Mode().Type() != fs.ModeSymlink:
			return "", nil, &fs.PathError{Op: "write", Path: name, Err: archive.ErrNotRegular}
		}
		to, err := os.Readlink(name)
		if err != nil {
			return "", nil, err
		}
		if !path.IsAbs(to) {
			dir, _ := above(name)
			to = dir + to
		}
		name = to
	}
	return "", nil, &fs.PathError{Op: "write", Path: name, Err: syscall.ELOOP}
}

func (h handler) remove(_ http.ResponseWriter, r *http.Request, name string) error {
	if !yes(r, wire.QueryAll) {
		return os.Remove(name)
	}
	if _, last := above(name); last == "" || last == "." || last == ".." {
		return &wire.Error{Code: wire.CodeBadRequest, Text: "remove " + name + ": name the directory itself, not /"}
	}
	if _, err := os.Lstat(name); err != nil {
		return err
	}
	return os.RemoveAll(name)
}

func (h handler) directory(_ http.ResponseWriter, r *http.Request, name string) error {
	perm, err := mode(r)
	if err != nil {
		return err
	}
	parents := yes(r, wire.QueryParents)
	if dir, _ := above(name); parents && dir != "" {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	if err := os.Mkdir(name, 0o777); errors.Is(err, fs.ErrExist) && parents {
		if info, serr := os.Stat(name); serr == nil && info.IsDir() {
			return nil
		}
		return err
	} else if err != nil {
		return err
	}
	if perm != nil {
		return os.Chmod(name, *perm)
	}
	return nil
}

func (h handler) info(w http.ResponseWriter, r *http.Request, name string) error {
	look := os.Stat
	if yes(r, wire.QueryLink) {
		look = os.Lstat
	}
	info, err := look(name)
	if err != nil {
		return err
	}
	return wirehttp.Document(w, describe(name, path.Base(name), info))
}

// describe returns the wire form of a file's info.
func describe(at, name string, info fs.FileInfo) wire.FileInfo {
	i := wire.FileInfo{Name: wire.Name(name), Type: wire.TypeOther, Size: info.Size(), Modified: info.ModTime().UTC()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		i.Mode, i.UID, i.GID = st.Mode&wire.MaxMode, st.Uid, st.Gid
	}
	switch info.Mode().Type() {
	case 0:
		i.Type = wire.TypeFile
	case fs.ModeDir:
		i.Type = wire.TypeDir
	case fs.ModeSymlink:
		i.Type = wire.TypeLink
		if to, err := os.Readlink(at); err == nil { // otherwise it has changed meanwhile
			i.Target = wire.Name(to)
		}
	}
	return i
}

// listChunk is how many names are read at once.
const listChunk = 1024

func (h handler) list(w http.ResponseWriter, r *http.Request, name string) error {
	dir, err := os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := first(dir, r.URL.Query().Get(wire.QueryAfter), wire.MaxList+1)
	if err != nil {
		return err
	}
	answer := wire.FileList{Entries: []wire.FileInfo{}, More: len(names) > wire.MaxList}
	names = names[:min(len(names), wire.MaxList)]
	size := 0
	for i, n := range names {
		at := name + "/" + n
		info, err := os.Lstat(at)
		if err != nil && len(answer.Entries) == 0 && answer.More && i == len(names)-1 {
			return err // a list that continues has an entry to continue after
		}
		if err != nil {
			continue // deleted meanwhile
		}
		e := describe(at, n, info)
		doc, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if size += len(doc) + 1; size > wire.MaxDocument/2 {
			answer.More = true
			break
		}
		answer.Entries = append(answer.Entries, e)
	}
	return wirehttp.Document(w, answer)
}

// first returns the first names of a directory after a given one, sorted, with memory for twice as many.
func first(dir *os.File, after string, most int) (names []string, err error) {
	for {
		some, err := dir.Readdirnames(listChunk)
		for _, n := range some {
			if n > after {
				names = append(names, n)
			}
		}
		over := errors.Is(err, io.EOF)
		if over || len(names) > 2*most {
			slices.Sort(names)
			names = names[:min(len(names), most)]
		}
		if over {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
