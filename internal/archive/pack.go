// Package archive packs files and directories into a tar in bounded memory, and unpacks untrusted tars.
package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
)

// Sum is what was packed or unpacked.
type Sum struct {
	Files int64 // and links
	Bytes int64 // of files
	// Left counts what was left out, since it is neither file, directory nor link, or a link that leads out of the
	// directory; FirstLeft is the name of one.
	Left      int64
	FirstLeft string
}

func (s *Sum) leave(name string) {
	if s.Left++; s.Left == 1 {
		s.FirstLeft = name
	}
}

// ReadError is of files that could not be read. All others were packed.
type ReadError struct {
	Count int64
	First error
}

func (e *ReadError) Error() string {
	if e.Count == 1 {
		return e.First.Error()
	}
	return fmt.Sprintf("%d files cannot be read, the first: %v", e.Count, e.First)
}

func (e *ReadError) Unwrap() error { return e.First }

// ErrChanged is of a file that became shorter while it was read. The tar is not whole.
var ErrChanged = errors.New("it changed while it was read")

// bufferSize is of a copy, in bytes: what one read of a fast disk brings.
const bufferSize = 256 << 10

// Pack writes a tar of a file, or of a directory and all below it. Its names are top and what is below top. A link at
// the path's end is followed, links below are packed as links.
func Pack(ctx context.Context, w io.Writer, name, top string) (Sum, error) {
	at, err := filepath.EvalSymlinks(name)
	if err != nil {
		return Sum{}, err
	}
	if info, err := os.Lstat(at); err != nil {
		return Sum{}, err
	} else if !info.IsDir() && !info.Mode().IsRegular() {
		return Sum{}, &fs.PathError{Op: "read", Path: name, Err: ErrNotRegular}
	}
	p := &packer{ctx: ctx, w: tar.NewWriter(w), at: at, top: top, buf: make([]byte, bufferSize)}
	if err := safeopen.Walk(at, p.visit); err != nil {
		return p.sum, err
	}
	if err := p.w.Close(); err != nil {
		return p.sum, err
	}
	if p.unread.Count > 0 {
		return p.sum, &p.unread
	}
	return p.sum, nil
}

type packer struct {
	ctx     context.Context
	w       *tar.Writer
	at, top string
	buf     []byte
	sum     Sum
	unread  ReadError
}

// visit packs one file. What of it cannot be read is noted; an error ends everything.
func (p *packer) visit(name string, info fs.FileInfo, err error) error {
	if err := p.ctx.Err(); err != nil {
		return context.Cause(p.ctx)
	}
	if err != nil {
		p.missed(err)
		return nil
	}
	h := &tar.Header{Name: p.top, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
	if below := strings.TrimPrefix(strings.TrimPrefix(name, p.at), "/"); below != "" {
		h.Name += "/" + below
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		h.Uid, h.Gid = int(st.Uid), int(st.Gid)
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return p.w.WriteHeader(h)
	case fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(name); err != nil {
			p.missed(err)
			return nil
		}
		p.sum.Files++
		return p.w.WriteHeader(h)
	case 0:
		return p.file(name, h)
	}
	p.sum.leave(h.Name)
	return nil
}

func (p *packer) missed(err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return // gone meanwhile
	}
	if p.unread.Count++; p.unread.Count == 1 {
		p.unread.First = err
	}
}

func (p *packer) file(name string, h *tar.Header) error {
	f, info, err := openFile(name, syscall.O_NOFOLLOW)
	if err != nil {
		p.missed(err)
		return nil
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := p.w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyBuffer(p.w, io.LimitReader(f, h.Size), p.buf) // what is appended meanwhile is not waited for
	if err == nil && n < h.Size {
		err = fmt.Errorf("read %s: %w", name, ErrChanged)
	}
	p.sum.Files++
	p.sum.Bytes += n
	return err
}

// ErrNotRegular is of what is no regular file.
var ErrNotRegular = errors.New("it is a directory, a device, a pipe or a socket")

// Open opens a regular file, and waits for nothing: a pipe is no file, and a device is not touched.
func Open(name string) (*os.File, error) {
	f, _, err := openFile(name, 0)
	return f, err
}

func openFile(name string, flags int) (*os.File, fs.FileInfo, error) {
	info, err := os.Lstat(name)
	if err == nil && info.Mode().Type() == fs.ModeSymlink && flags&syscall.O_NOFOLLOW == 0 {
		info, err = os.Stat(name)
	}
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, &fs.PathError{Op: "read", Path: name, Err: ErrNotRegular}
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|flags, 0)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() { // it was another a moment ago
		err = &fs.PathError{Op: "read", Path: name, Err: ErrNotRegular}
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}
