package portforward

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
)

const (
	// lookEvery is how often a port forwarder looks whether its sandbox is still there.
	lookEvery = 5 * time.Second
	// lookTime bounds one look.
	lookTime = 20 * time.Second
	// awayTime is how long a port forwarder waits for an engine that does not answer: longer than one takes to be updated. The
	// next command starts another.
	awayTime = 10 * time.Minute
)

// ErrGone means that a sandbox is not there any more.
var ErrGone = errors.New("the sandbox is gone")

// Sandbox is what a port forwarder holds endpoints of.
type Sandbox interface {
	// DialPort connects to a port of the sandbox.
	DialPort(ctx context.Context, port int) (net.Conn, error)
	// CheckExists returns ErrGone where the sandbox is gone for good.
	CheckExists(ctx context.Context) error
}

// Serve is the port forwarder: it returns when no endpoint is wanted any more, when the sandbox is gone, or when ctx ends.
func Serve(ctx context.Context, dir string, sb Sandbox) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, reload)
	defer signal.Stop(told)
	s := &server{dir: dir, sb: sb, on: map[Port]*Endpoint{}}
	defer s.close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	seen := time.Now()
	for {
		if more, err := s.follow(ctx); err != nil || !more {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-told:
		case <-tick.C:
			one, cancel := context.WithTimeout(ctx, lookTime)
			err := sb.CheckExists(one)
			cancel()
			switch {
			case errors.Is(err, ErrGone):
				return nil
			case err == nil:
				seen = time.Now()
			case time.Since(seen) > awayTime:
				return err
			}
		}
	}
}

// server serves the endpoints.
type server struct {
	dir        string
	sb         Sandbox
	generation int64
	on         map[Port]*Endpoint // by what was wanted
}

// follow opens and closes endpoints until they are the desired ones, and records them. more is false if none is desired.
func (s *server) follow(ctx context.Context) (more bool, err error) {
	w, err := readWanted(s.dir)
	if err != nil {
		return false, err
	}
	if w.Generation == s.generation && len(w.Ports) > 0 {
		return true, nil
	}
	h := observed{Process: statedir.ProcessOf(os.Getpid()), Generation: w.Generation, Ports: []Port{}, Errors: map[int]string{}}
	now := map[Port]*Endpoint{}
	for _, p := range w.Ports {
		e := s.held(p)
		if e == nil {
			if e, err = Listen(ctx, p.Local, func(ctx context.Context) (net.Conn, error) { return s.sb.DialPort(ctx, p.Port) }); err != nil {
				h.Errors[p.Port] = err.Error()
				continue
			}
		}
		at := Port{p.Port, e.Port()}
		now[at] = e
		h.Ports = append(h.Ports, at)
	}
	for at, e := range s.on {
		if now[at] != e {
			_ = e.Close() // it is not wanted any more
		}
	}
	s.on, s.generation = now, w.Generation
	if len(w.Ports) == 0 {
		return false, nil
	}
	return true, write(s.dir, heldFile, h)
}

// held is the endpoint that is what is wanted, if there is one.
func (s *server) held(p Port) *Endpoint {
	for at, e := range s.on {
		if at.Port == p.Port && (p.Local == 0 || at.Local == p.Local) {
			return e
		}
	}
	return nil
}

// close ends all endpoints, and takes back what was said of them.
func (s *server) close() {
	for _, e := range s.on {
		_ = e.Close() // no one could act on the error
	}
	if h, err := readHeld(s.dir); err == nil && h.Process != nil && h.Process.PID == os.Getpid() {
		_ = os.Remove(filepath.Join(s.dir, heldFile)) // one that stays is of a process that does not live
	}
}
