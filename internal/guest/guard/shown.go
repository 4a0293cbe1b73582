package guard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
)

// shownBuffer is the buffered part of an answer, in bytes.
const shownBuffer = 32 << 10

type shownKey struct{}

// withShown marks a request in whose answer mount points are replaced by the client's paths.
func withShown(ctx context.Context) context.Context {
	return context.WithValue(ctx, shownKey{}, true)
}

// show is called for every answer.
func (g *Guard) show(resp *http.Response) error {
	if resp.Request == nil || resp.Request.Context().Value(shownKey{}) == nil || resp.Request.Method == http.MethodHead || !g.points.any() {
		return nil
	}
	if t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil // not JSON
	}
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	resp.Body = struct {
		io.Reader
		io.Closer
	}{g.points.shown(resp.Body), resp.Body}
	return nil
}

// shown reads JSON and replaces mount points by the client's sources.
func (p *points) shown(r io.Reader) io.Reader {
	return &shown{from: bufio.NewReaderSize(r, shownBuffer), points: p, prefix: []byte(p.dir + "/")}
}

// shown replaces the paths of mount points while it reads.
type shown struct {
	from   *bufio.Reader
	points *points
	prefix []byte
	out    []byte // of a replaced path, still to be read
}

func (s *shown) Read(b []byte) (int, error) {
	for len(s.out) == 0 {
		if _, err := s.from.Peek(1); err != nil {
			return 0, err
		}
		have, _ := s.from.Peek(s.from.Buffered())
		i, whole := find(have, s.prefix)
		if i > 0 {
			n := copy(b, have[:i])
			_, _ = s.from.Discard(n) // it is in the buffer
			return n, nil
		}
		if !whole {
			// This may be the beginning of a path: more bytes are needed.
			if _, err := s.from.Peek(len(have) + 1); err == nil {
				continue
			} else if !errors.Is(err, io.EOF) {
				return 0, err
			}
		}
		s.next()
	}
	n := copy(b, s.out)
	s.out = s.out[n:]
	return n, nil
}

// next reads a path, or one byte that only looks like the start of one.
func (s *shown) next() {
	n := len(s.prefix) + 2*nameBytes
	have, _ := s.from.Peek(n) // shorter at the end
	take, put := 1, have[:min(1, len(have))]
	if len(have) == n && bytes.HasPrefix(have, s.prefix) {
		if b, ok := s.points.bound(string(have[len(s.prefix):])); ok {
			take, put = n, inJSON(b.source)
		}
	}
	s.out = append([]byte(nil), put...)
	_, _ = s.from.Discard(take) // it is in the buffer
}

// find returns where the prefix begins, or could begin at the end of b; whole means that all of it is there.
func find(b, prefix []byte) (at int, whole bool) {
	if i := bytes.Index(b, prefix); i >= 0 {
		return i, true
	}
	for n := min(len(prefix)-1, len(b)); n > 0; n-- {
		if bytes.HasSuffix(b, prefix[:n]) {
			return len(b) - n, false
		}
	}
	return len(b), false
}

// inJSON is a text as written between quotes.
func inJSON(s string) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return nil // a string can always be written
	}
	return []byte(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`))
}
