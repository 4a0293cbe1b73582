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
	"net/url"
	"strings"
	"time"
)

const (
	// drainMax and drainTime bound the reading of a refused request's body: a client that is still sending would not
	// see the reason.
	drainMax  = 64 << 20
	drainTime = 5 * time.Second
	// createTime bounds the creation of a container: its volumes are filled from the image.
	createTime = 10 * time.Minute
)

type judge struct {
	g    *Guard
	peer peer
	// binds are HostConfig.Binds in the form of Mounts.
	binds []any
	// later runs once everything is allowed.
	later []func(context.Context) error
	// points lists the mount points that were created.
	points []string
}

// request is the parsed request; only its fields are forwarded.
type request struct {
	endpoint
	path  []string
	query url.Values
	data  []byte // of a checked body; nil if there is none
	// points lists mount points of the container that is being created.
	points []string
	// started is called after the engine's answer to a start. It may be nil.
	started func()
}

func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	who := peerFrom(r.Context())
	req, err := g.admit(rc, r, who)
	var no *refusal
	switch {
	case errors.As(err, &no):
		g.refused(no, who)
		_ = rc.EnableFullDuplex() // the reason is sent while the body is still arriving
		fail(w, http.StatusForbidden, no.Error())
		drain(rc, r.Body)
	case err != nil: // the client is gone, or the engine that was asked about a container
		g.unavailable(w, r, err)
	case req.kind == hijack:
		g.hijack(w, r, req)
	default:
		if req.kind == stream {
			_ = rc.EnableFullDuplex() // the engine answers a build before it has read all of it
		}
		g.forward(w, r, req)
	}
}

func (g *Guard) forward(w http.ResponseWriter, r *http.Request, req *request) {
	out := req.outgoing(r)
	ctx := out.Context()
	if req.shows {
		ctx = context.WithValue(ctx, shownKey{}, true)
	}
	if len(req.points) > 0 {
		// If the client goes away, the engine's answer is still awaited: then the engine has the container.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), createTime)
		defer cancel()
	}
	if req.ends || len(req.points) > 0 {
		defer func() {
			g.binds.settle(req.points)
			if g.binds.any() {
				g.sweeps.later()
			}
		}()
	}
	if req.started != nil {
		defer req.started()
	}
	g.proxy.ServeHTTP(w, out.WithContext(ctx))
}

// admit checks a request. Its result contains only parsed parts of the client's request.
func (g *Guard) admit(rc *http.ResponseController, r *http.Request, who peer) (*request, error) {
	e, path, err := locate(r.Method, r.URL.Path)
	if err != nil {
		return nil, err
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(ruleQuery, "the query of %s cannot be parsed (%v)", r.URL.Path, err)
	}
	if e.query != nil {
		if err := e.query(q); err != nil {
			return nil, err
		}
	}
	req := &request{endpoint: e, path: path, query: q}
	if e.body != nil {
		j := &judge{g: g, peer: who}
		if req.data, err = g.judgeBody(rc, r, e, j); err != nil {
			return nil, err
		}
		req.points = j.points
	}
	switch {
	case e.archive:
		err = g.archive(r.Context(), req)
	case e.starts:
		err = g.renew(r.Context(), req, who)
	}
	return req, err
}

func (g *Guard) judgeBody(rc *http.ResponseController, r *http.Request, e endpoint, j *judge) ([]byte, error) {
	select {
	case g.judged <- struct{}{}:
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	defer func() { <-g.judged }()
	_ = rc.SetReadDeadline(time.Now().Add(bodyTime))
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	_ = rc.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		return nil, refuse(ruleBody, "the body did not arrive completely (%v)", err)
	case len(b) > maxBody:
		return nil, refuse(ruleBody, "the body is larger than %d bytes", maxBody)
	case len(bytes.TrimSpace(b)) == 0:
		return nil, nil
	}
	if e.kind != plain { // of a body that is dropped the type does not matter
		if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
			return nil, refuse(ruleBody, "the body's type is %q, not application/json", r.Header.Get("Content-Type"))
		}
	}
	return j.json(r.Context(), b, e.body)
}

// json returns a body encoded again; it has only what the checks let pass.
func (j *judge) json(ctx context.Context, b []byte, c check) ([]byte, error) {
	v, err := parse(b)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, nil
	}
	if v, err = c(j, "", v); err != nil {
		return nil, err
	}
	for _, do := range j.later {
		if err = do(ctx); err != nil {
			break
		}
	}
	if err == nil {
		b, err = encode(v)
	}
	if err != nil {
		return nil, errors.Join(err, j.g.binds.drop(j.points))
	}
	return b, nil
}

// dropped are the headers that concern one connection, or the client's original body.
var dropped = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Expect", "Content-Length", "Content-Type", "Http2-Settings",
}

// outgoing returns the request to the engine. It never labels a body as a form, which would override the query.
func (q *request) outgoing(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	path := "/" + strings.Join(q.path, "/")
	out.URL = &url.URL{Scheme: "http", Host: "docker", Path: path, RawPath: encodePath(q.path), RawQuery: q.query.Encode()}
	out.Host, out.RequestURI, out.TransferEncoding, out.Trailer, out.Close = "docker", "", nil, nil, false
	out.Form, out.PostForm, out.MultipartForm = nil, nil, nil
	for name := range strings.SplitSeq(strings.Join(r.Header["Connection"], ","), ",") {
		out.Header.Del(strings.TrimSpace(name))
	}
	for _, name := range dropped {
		out.Header.Del(name)
	}
	switch {
	case q.kind == stream && r.ContentLength != 0:
		out.Header.Set("Content-Type", "application/x-tar")
		out.Body, out.ContentLength = r.Body, r.ContentLength
	case q.kind != plain && q.data != nil:
		out.Header.Set("Content-Type", "application/json")
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(q.data)), int64(len(q.data))
	default:
		out.Body, out.ContentLength = http.NoBody, 0
	}
	return out
}

// fail answers in the engine's format.
func fail(w http.ResponseWriter, code int, message string) {
	b, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		return // a string can always be written
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(b, '\n'))
}

func drain(rc *http.ResponseController, body io.Reader) {
	if rc.Flush() != nil {
		return
	}
	_ = rc.SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, body, drainMax)
	_ = rc.SetReadDeadline(time.Time{})
}

func (g *Guard) unavailable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client is gone
	}
	g.cfg.Log.Debug("the inner engine did not answer", "path", r.URL.Path, "error", err)
	fail(w, http.StatusServiceUnavailable, "sandbox-agent guard: the Docker engine of the sandbox does not answer ("+
		clean(err.Error())+"): try again; if the error persists, see dockerd.log of the run")
}

const rewriterBuffer = 32 << 10

type shownKey struct{}

func (g *Guard) show(resp *http.Response) error {
	if resp.Request == nil || resp.Request.Context().Value(shownKey{}) == nil || resp.Request.Method == http.MethodHead || !g.binds.any() {
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
	}{g.binds.rewrite(resp.Body), resp.Body}
	return nil
}

func (m *bindMounts) rewrite(r io.Reader) io.Reader {
	return &pathRewriter{from: bufio.NewReaderSize(r, rewriterBuffer), points: m, prefix: []byte(m.dir + "/")}
}

type pathRewriter struct {
	from   *bufio.Reader
	points *bindMounts
	prefix []byte
	out    []byte // of a replaced path, still to be read
}

func (w *pathRewriter) Read(b []byte) (int, error) {
	for len(w.out) == 0 {
		if _, err := w.from.Peek(1); err != nil {
			return 0, err
		}
		have, _ := w.from.Peek(w.from.Buffered())
		i, whole := find(have, w.prefix)
		if i > 0 {
			n := copy(b, have[:i])
			_, _ = w.from.Discard(n) // it is in the buffer
			return n, nil
		}
		if !whole {
			// This may be the beginning of a path: more bytes are needed.
			if _, err := w.from.Peek(len(have) + 1); err == nil {
				continue
			} else if !errors.Is(err, io.EOF) {
				return 0, err
			}
		}
		w.next()
	}
	n := copy(b, w.out)
	w.out = w.out[n:]
	return n, nil
}

// next reads a path, or one byte that only looks like the start of one.
func (w *pathRewriter) next() {
	n := len(w.prefix) + 2*nameBytes
	have, _ := w.from.Peek(n) // shorter at the end
	take, put := 1, have[:min(1, len(have))]
	if len(have) == n && bytes.HasPrefix(have, w.prefix) {
		if b, ok := w.points.request(string(have[len(w.prefix):])); ok {
			take, put = n, inJSON(b.source)
		}
	}
	w.out = append([]byte(nil), put...)
	_, _ = w.from.Discard(take) // it is in the buffer
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
