package wireclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Files accesses the files of a sandbox.
type Files struct{ c *Client }

// Files returns access to the sandbox's files.
func (c *Client) Files() Files { return Files{c} }

// ErrTooManyEntries means that a directory has more entries than requested.
var ErrTooManyEntries = errors.New("too many entries in the directory")

// FileQuery names a file in a request. A nil Mode sets none.
type FileQuery struct {
	Path               string
	Mode               *uint32
	Parents, All, Link bool
	after              string
}

func (q FileQuery) values() url.Values {
	v := url.Values{wire.QueryPath: {q.Path}}
	for name, yes := range map[string]bool{wire.QueryParents: q.Parents, wire.QueryAll: q.All, wire.QueryLink: q.Link} {
		if yes {
			v.Set(name, "1")
		}
	}
	if q.Mode != nil {
		v.Set(wire.QueryMode, strconv.FormatUint(uint64(*q.Mode), 8))
	}
	if q.after != "" {
		v.Set(wire.QueryAfter, q.after)
	}
	return v
}

// FileReader is the content of a file or a tar.
type FileReader struct {
	ctx    context.Context
	answer *http.Response
	end    wire.TransferSummary
}

// Read implements io.Reader. It returns io.EOF only at the end of the complete content. A complete tar with unreadable files ends in
// another error.
func (r *FileReader) Read(p []byte) (int, error) {
	n, err := r.answer.Body.Read(p)
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		return n, lost(r.ctx, err)
	}
	value := r.answer.Trailer.Get(wire.TrailerEnd)
	if value == "" {
		return n, lost(r.ctx, io.ErrUnexpectedEOF)
	}
	if r.end, err = wire.ParseTransferSummary(value); err != nil {
		return n, err
	}
	if r.end.Error != nil {
		return n, shown(r.end.Error)
	}
	return n, io.EOF
}

// End returns the guest's summary after the end.
func (r *FileReader) End() wire.TransferSummary { return r.end }

// Close ends the request.
func (r *FileReader) Close() error { return r.answer.Body.Close() }

func (f Files) content(ctx context.Context, path string, q FileQuery) (*FileReader, error) {
	answer, err := f.c.do(ctx, http.MethodGet, path, q.values(), nil)
	if err != nil {
		return nil, err
	}
	return &FileReader{ctx: ctx, answer: answer}, nil
}

// Open opens a file for reading. ctx bounds the whole transfer.
func (f Files) Open(ctx context.Context, q FileQuery) (*FileReader, error) {
	return f.content(ctx, wire.PathFiles, q)
}

// TarOut returns a tar of a file or directory. ctx bounds the whole transfer.
func (f Files) TarOut(ctx context.Context, q FileQuery) (*FileReader, error) {
	return f.content(ctx, wire.PathFilesTar, q)
}

// put sends a body. An error of reading r takes precedence.
func (f Files) put(ctx context.Context, path string, q FileQuery, r io.Reader) (*http.Response, error) {
	src := &source{r: r}
	answer, err := f.c.do(ctx, http.MethodPut, path, q.values(), body(nil, src))
	if failed := src.err.Load(); err != nil && failed != nil && ctx.Err() == nil {
		return nil, *failed // not an error of the sandbox
	}
	return answer, err
}

// Write replaces a file's content with all of r.
func (f Files) Write(ctx context.Context, q FileQuery, r io.Reader) error {
	answer, err := f.put(ctx, wire.PathFiles, q, r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// TarIn unpacks a tar in a directory.
func (f Files) TarIn(ctx context.Context, q FileQuery, r io.Reader) (e wire.TransferSummary, err error) {
	answer, err := f.put(ctx, wire.PathFilesTar, q, r)
	if err != nil {
		return e, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, wire.MaxDocument)).Decode(&e); err != nil {
		return e, fmt.Errorf("%w: unpack %s: %w", ErrConnectionLost, q.Path, err)
	}
	return e, nil
}

// Info describes a file.
func (f Files) Info(ctx context.Context, q FileQuery) (i wire.FileInfo, err error) {
	if err := f.c.get(ctx, wire.PathFilesInfo, q.values(), &i); err != nil {
		return i, err
	}
	if err := i.Check(); err != nil {
		return i, fmt.Errorf("%w: %w", ErrConnectionLost, err)
	}
	return i, nil
}

// List lists a directory by name. More than most entries are ErrTooManyEntries.
func (f Files) List(ctx context.Context, q FileQuery, most int) (all []wire.FileInfo, err error) {
	for {
		var page wire.FileList
		if err := f.c.get(ctx, wire.PathFilesList, q.values(), &page); err != nil {
			return nil, err
		}
		for _, i := range page.Entries {
			err := i.Check()
			if n := string(i.Name); err == nil && (n <= q.after || n == "." || n == ".." || n == "/") {
				err = fmt.Errorf("%q is out of order in the list", n)
			}
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrConnectionLost, err)
			}
			q.after = string(i.Name)
		}
		if all = append(all, page.Entries...); len(all) > most {
			return nil, fmt.Errorf("list %s: %w: more than %d", q.Path, ErrTooManyEntries, most)
		}
		if !page.More {
			return all, nil
		}
		if len(page.Entries) == 0 {
			return nil, fmt.Errorf("%w: empty page in the list of %s", ErrConnectionLost, q.Path)
		}
	}
}

// Remove removes a file.
func (f Files) Remove(ctx context.Context, q FileQuery) error {
	return f.request(ctx, http.MethodDelete, wire.PathFiles, q)
}

// MakeDir creates a directory.
func (f Files) MakeDir(ctx context.Context, q FileQuery) error {
	return f.request(ctx, http.MethodPost, wire.PathFilesDir, q)
}

func (f Files) request(ctx context.Context, method, path string, q FileQuery) error {
	answer, err := f.c.do(ctx, method, path, q.values(), nil)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Watch reports changes.
type Watch struct {
	ctx    context.Context
	body   io.ReadCloser
	frames *wire.Reader
}

// Watch watches a file or directory and reports every change after it returns. ctx bounds it.
func (f Files) Watch(ctx context.Context, q FileQuery) (*Watch, error) {
	answer, err := f.c.do(ctx, http.MethodGet, wire.PathWatch, q.values(), nil)
	if err != nil {
		return nil, err
	}
	return &Watch{ctx, answer.Body, wire.NewReader(answer.Body)}, nil
}

// Next waits for a change. It returns io.EOF when the watched path was removed.
func (w *Watch) Next() (change wire.Change, err error) {
	for {
		f, err := w.frames.Next()
		if errors.Is(err, io.EOF) {
			return change, io.EOF
		}
		if err != nil {
			return change, lost(w.ctx, err)
		}
		if f.Type != wire.FrameChange {
			continue
		}
		if err := f.Decode(&change); err != nil {
			return change, err
		}
		if err := change.Check(); err != nil {
			return change, fmt.Errorf("%w: %w", wire.ErrFrame, err)
		}
		return change, nil
	}
}

// Close ends the watch.
func (w *Watch) Close() error { return w.body.Close() }
