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
	lookEvery = 5 * time.Second  // between two checks that the sandbox exists
	lookTime  = 20 * time.Second // of one check
	// awayTime is how long an engine may be unavailable, for example during an update. The next command restarts the port forwarder.
	awayTime = 10 * time.Minute
)

// ErrGone means that the sandbox no longer exists.
var ErrGone = errors.New("the sandbox is gone")

// Sandbox is the sandbox whose ports are served.
type Sandbox interface {
	DialPort(ctx context.Context, port int) (net.Conn, error)
	// CheckExists returns ErrGone if the sandbox no longer exists.
	CheckExists(ctx context.Context) error
}

// Serve runs the port forwarder until no endpoint is desired, the sandbox is gone or ctx ends.
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

type server struct {
	dir        string
	sb         Sandbox
	generation int64
	on         map[Port]*Endpoint
}

// follow applies the desired endpoints and records the result. more is false if none is desired.
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
			_ = e.Close() // no longer desired
		}
	}
	s.on, s.generation = now, w.Generation
	if len(w.Ports) == 0 {
		return false, nil
	}
	return true, write(s.dir, heldFile, h)
}

func (s *server) held(p Port) *Endpoint {
	for at, e := range s.on {
		if at.Port == p.Port && (p.Local == 0 || at.Local == p.Local) {
			return e
		}
	}
	return nil
}

// close ends all endpoints and removes the record of this process.
func (s *server) close() {
	for _, e := range s.on {
		_ = e.Close()
	}
	if h, err := readHeld(s.dir); err == nil && h.Process != nil && h.Process.PID == os.Getpid() {
		_ = os.Remove(filepath.Join(s.dir, heldFile)) // a record that stays names a dead process
	}
}
