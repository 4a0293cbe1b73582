package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/wirehttp"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// maxSessions bounds the interpreters of a sandbox, each of which has several processes.
const maxSessions = 128

// Server are the interpreters of a sandbox. Its methods are safe for concurrent use.
type Server struct {
	config Config
	mux    *http.ServeMux
	mu     sync.Mutex
	all    map[string]*entry
	over   bool
}

type entry struct {
	ready chan struct{}
	s     *session // valid once ready is closed; nil after an error
}

// ended reports whether its session no longer exists.
func (e *entry) ended() bool {
	select {
	case <-e.ready:
		return e.s == nil || e.s.ended()
	default:
		return false
	}
}

// New returns a Server without any interpreter.
func New(c Config) *Server {
	s := &Server{config: c, mux: http.NewServeMux(), all: map[string]*entry{}}
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST " + wire.PathSessions:         s.open,
		"GET " + wire.PathSessions:          s.list,
		"DELETE " + wire.PathSession:        s.end,
		"POST " + wire.PathSessionRun:       s.run,
		"POST " + wire.PathSessionInterrupt: s.interrupt,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				wirehttp.Error(w, err)
			}
		})
	}
	return s
}

// Patterns returns the patterns of the requests that ServeHTTP answers.
func Patterns() []string { return []string{wire.PathSessions, wire.PathSessions + "/"} }

// ServeHTTP answers a request that matches one of Patterns.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close ends all interpreters, and prevents new ones.
func (s *Server) Close() {
	s.mu.Lock()
	s.over = true
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	for _, e := range all {
		select {
		case <-e.ready:
			if e.s != nil {
				e.s.close()
			}
		default: // its start fails with the request
		}
	}
	limit := time.After(endTime)
	for _, e := range all {
		select {
		case <-e.ready:
		default:
			continue
		}
		if e.s == nil {
			continue
		}
		select {
		case <-e.s.over:
		case <-limit:
			return
		}
	}
}

func (s *Server) open(w http.ResponseWriter, r *http.Request) error {
	var spec wire.SessionSpec
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, wire.MaxDocument)).Decode(&spec); err != nil {
		return &wire.Error{Code: wire.CodeBadRequest, Text: "the request's document: " + err.Error()}
	}
	if err := spec.Check(); err != nil {
		return &wire.Error{Code: wire.CodeBadRequest, Text: err.Error()}
	}
	for {
		e, mine, err := s.take(spec)
		if err != nil {
			return err
		}
		if mine {
			opened, err := open(r.Context(), s.config, spec)
			s.mu.Lock()
			e.s = opened
			over := s.over
			if err != nil {
				delete(s.all, spec.ID)
			}
			s.mu.Unlock()
			close(e.ready)
			if err != nil {
				return err
			}
			if over {
				opened.close()
			}
			d := opened.document()
			d.Fresh = true
			return wirehttp.Document(w, d)
		}
		select {
		case <-e.ready:
		case <-r.Context().Done():
			return nil
		}
		if e.ended() {
			s.forget(spec.ID, e)
			continue
		}
		if e.s.spec.Driver != spec.Driver || e.s.spec.Kernel != spec.Kernel {
			return &wire.Error{
				Code: wire.CodeExists, Text: fmt.Sprintf("session %s runs %s", spec.ID, strings.TrimSpace(e.s.spec.Driver+" "+e.s.spec.Kernel)),
			}
		}
		return wirehttp.Document(w, e.s.document())
	}
}

// take returns the entry of a session, or a new one, which the caller must start.
func (s *Server) take(spec wire.SessionSpec) (e *entry, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[spec.ID]; e != nil {
		return e, false, nil
	}
	if s.over {
		return nil, false, &wire.Error{Code: wire.CodeFailed, Text: "the sandbox ends"}
	}
	for id, e := range s.all {
		if e.ended() {
			delete(s.all, id)
		}
	}
	if len(s.all) >= maxSessions {
		return nil, false, &wire.Error{Code: wire.CodeExhausted, Text: fmt.Sprintf("the sandbox already has %d sessions", len(s.all))}
	}
	e = &entry{ready: make(chan struct{})}
	s.all[spec.ID] = e
	return e, true, nil
}

func (s *Server) forget(id string, e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id] == e {
		delete(s.all, id)
	}
}

func (s *Server) get(r *http.Request) (*session, error) {
	id := r.PathValue("id")
	s.mu.Lock()
	e := s.all[id]
	s.mu.Unlock()
	if e != nil {
		select {
		case <-e.ready:
			if !e.ended() {
				return e.s, nil
			}
			s.forget(id, e)
		case <-r.Context().Done():
		}
	}
	return nil, &wire.Error{Code: wire.CodeNotFound, Text: fmt.Sprintf("session %.80q does not exist in the sandbox, or has ended", id)}
}

func (s *Server) list(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []wire.Session{}
	for id, e := range s.all {
		select {
		case <-e.ready:
			if e.ended() {
				delete(s.all, id)
				continue
			}
			list = append(list, e.s.document())
		default:
		}
	}
	slices.SortFunc(list, func(a, b wire.Session) int { return a.Started.Compare(b.Started) })
	return wirehttp.Document(w, list)
}

func (s *Server) end(_ http.ResponseWriter, r *http.Request) error {
	one, err := s.get(r)
	if err != nil {
		return err
	}
	one.close()
	select {
	case <-one.over:
	case <-r.Context().Done():
	case <-time.After(endTime):
		return &wire.Error{Code: wire.CodeFailed, Text: "the session did not end"}
	}
	return nil
}

func (s *Server) interrupt(_ http.ResponseWriter, r *http.Request) error {
	one, err := s.get(r)
	if err == nil {
		one.interrupt()
	}
	return err
}

func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	one, err := s.get(r)
	if err != nil {
		return err
	}
	frames := wire.NewReader(r.Body)
	f, err := frames.Next()
	if err != nil || f.Type != wire.FrameCell {
		return &wire.Error{Code: wire.CodeBadRequest, Text: "the request does not begin with a cell"}
	}
	var what wire.Cell
	if err := f.Decode(&what); err != nil || what.TimeoutMS < 0 {
		return &wire.Error{Code: wire.CodeBadRequest, Text: "the request does not begin with a runnable cell"}
	}
	code, err := readCode(frames.Rest())
	if err != nil {
		return err
	}
	if one.spec.Driver == wire.DriverBash && bytes.IndexByte(code, 0) >= 0 {
		return &wire.Error{Code: wire.CodeBadRequest, Text: "the code has a zero byte, which no shell can read"}
	}
	select {
	case one.turn <- struct{}{}:
	case <-r.Context().Done():
		return nil
	}
	defer func() { <-one.turn }()
	if one.ended() {
		return &wire.Error{Code: wire.CodeNotFound, Text: fmt.Sprintf("session %s has ended", one.spec.ID)}
	}
	out := &frameWriter{w: w, rc: http.NewResponseController(w), patience: clientTime}
	if out.rc.Flush() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	var beat sync.WaitGroup
	beat.Go(func() { out.alive(ctx) })
	end := one.cell(r.Context(), s.config.OOMKills, what, code, out)
	cancel()
	beat.Wait()
	out.document(wire.FrameCellEnd, end)
	return nil
}

// clientTime is how long a client may take to read output: the next client waits for the session meanwhile.
const clientTime = 30 * time.Second

// frameWriter writes an answer of frames. A client that reads nothing is dropped.
type frameWriter struct {
	patience time.Duration

	mu   sync.Mutex
	w    http.ResponseWriter
	rc   *http.ResponseController
	gone bool
}

func (f *frameWriter) write(frames ...[]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return
	}
	_ = f.rc.SetWriteDeadline(time.Now().Add(f.patience)) // a writer without deadlines has no slow client either
	for _, b := range frames {
		_, err := f.w.Write(b)
		f.gone = f.gone || err != nil
	}
	f.gone = f.rc.Flush() != nil || f.gone
	_ = f.rc.SetWriteDeadline(time.Time{}) // a cell may be silent for any time
}

// Print implements output.
func (f *frameWriter) Print(t wire.FrameType, p []byte) { f.write(wire.FrameHead(t, len(p)), p) }

// Show implements output.
func (f *frameWriter) Show(d wire.Display) { f.document(wire.FrameDisplay, d) }

func (f *frameWriter) document(t wire.FrameType, d any) {
	b, err := wire.DocumentFrame(t, d)
	if err != nil && t == wire.FrameCellEnd { // its value is too long
		end := d.(wire.CellEnd)
		end.Value, end.Message = "", ""
		b, err = wire.DocumentFrame(t, end)
	}
	if err == nil {
		f.write(b)
	}
}

// alive reports periodically that the cell is running.
func (f *frameWriter) alive(ctx context.Context) {
	tick := time.NewTicker(wire.AliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.write(wire.AppendFrame(nil, wire.FrameAlive, nil))
		}
	}
}
