package wireserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/wirehttp"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	frames := wire.NewReader(r.Body)
	f, err := frames.Next()
	if err != nil || f.Type != wire.FrameCommand {
		return &wire.Error{Code: wire.CodeBadRequest, Text: "the request does not begin with a command"}
	}
	var what wire.Command
	if err := f.Decode(&what); err != nil {
		return &wire.Error{Code: wire.CodeBadRequest, Text: err.Error()}
	}
	c, err := s.commands.start(r.Context(), what)
	if err != nil {
		return err
	}
	go func() {
		// The command accepts no more input, or its client is gone. For a terminal that is not the end of the input (^D).
		err := c.write(frames.Rest())
		close(c.begun)
		if !what.KeepInput && (err == nil || what.Terminal == nil) {
			c.closeInput()
		}
	}()
	started, err := wire.DocumentFrame(wire.FrameStarted, wire.Started{ID: c.id})
	if err != nil {
		return wirehttp.Failed("describe the command", err)
	}
	out := &frameWriter{w: w, rc: http.NewResponseController(w)}
	if err := errors.Join(out.write(started), s.follow(r.Context(), out, c, 0, !what.Background)); err != nil && !what.Background {
		c.out.drop()
		c.run.End(syscall.SIGHUP, leftGrace)
	}
	return nil // the answer began as a success: later errors are in the frames
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.get(r.PathValue("id"))
	if err != nil {
		return err
	}
	from, err := number(r, wire.QueryFrom)
	if err != nil {
		return err
	}
	out := &frameWriter{w: w, rc: http.NewResponseController(w)}
	_ = s.follow(r.Context(), out, c, from, false) // a client that is gone may reconnect
	return nil
}

// follow sends the command's output from an offset until its end. With hold, no output is dropped.
func (s *Server) follow(ctx context.Context, out *frameWriter, c *command, at int64, hold bool) error {
	tick := time.NewTicker(wire.AliveEvery)
	defer tick.Stop()
	if err := out.flush(); err != nil {
		return err
	}
	for {
		p, lost, err := c.out.next(ctx, at, tick.C)
		switch {
		case errors.Is(err, io.EOF):
			c.mu.Lock()
			exit := c.exit
			c.mu.Unlock()
			frame, err := wire.DocumentFrame(wire.FrameExit, exit)
			if err != nil {
				return err
			}
			return errors.Join(out.write(frame), out.flush())
		case errors.Is(err, errQuiet):
			err = errors.Join(out.write(wire.AppendFrame(nil, wire.FrameAlive, nil)), out.flush())
		case err != nil:
		case lost > 0:
			at += lost
			err = out.write(wire.LostFrame(lost))
		default:
			at += int64(len(p.data))
			err = errors.Join(out.write(wire.FrameHead(p.stream, len(p.data))), out.write(p.data))
			if err == nil && at == c.out.len() { // no output is pending
				err = out.flush()
			}
		}
		if err != nil {
			return err
		}
		if hold {
			c.out.read(at)
		}
	}
}

func (s *Server) list(w http.ResponseWriter, _ *http.Request) error {
	return wirehttp.Document(w, s.commands.list())
}

func (s *Server) end(_ http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.get(r.PathValue("id"))
	if err != nil {
		return err
	}
	c.run.End(syscall.SIGTERM, stopGrace)
	select {
	case <-c.done:
	case <-r.Context().Done():
	}
	return nil
}

func (s *Server) signal(_ http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.get(r.PathValue("id"))
	if err != nil {
		return err
	}
	var sig wire.Signal
	if err := decode(r, &sig); err != nil {
		return err
	}
	const most = 64
	if sig.Number < 1 || sig.Number > most {
		return &wire.Error{Code: wire.CodeBadRequest, Text: "unknown signal"}
	}
	c.run.Signal(syscall.Signal(sig.Number))
	return nil
}

func (s *Server) resize(_ http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.get(r.PathValue("id"))
	if err != nil {
		return err
	}
	var size wire.Size
	if err := decode(r, &size); err != nil {
		return err
	}
	return c.resize(size)
}

func (s *Server) input(_ http.ResponseWriter, r *http.Request) error {
	c, err := s.commands.get(r.PathValue("id"))
	if err != nil {
		return err
	}
	if c.what.KeepInput { // input that came with the command is first
		select {
		case <-c.begun:
		case <-r.Context().Done():
			return nil
		}
	}
	if err := c.write(r.Body); err != nil {
		return &wire.Error{Code: wire.CodeRefused, Text: "the command accepts no more input"}
	}
	if r.URL.Query().Get(wire.QueryClose) == "1" {
		c.closeInput()
	}
	return nil
}

type frameWriter struct {
	w  io.Writer
	rc *http.ResponseController
}

func (f *frameWriter) write(frame []byte) error {
	_, err := f.w.Write(frame)
	return err
}

func (f *frameWriter) flush() error { return f.rc.Flush() }
