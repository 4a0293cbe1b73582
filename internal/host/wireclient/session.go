package wireclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// OpenSession starts an interpreter, or finds the one of the spec's ID.
func (c *Client) OpenSession(ctx context.Context, spec wire.SessionSpec) (s wire.Session, err error) {
	b, err := json.Marshal(spec)
	if err != nil {
		return s, err
	}
	answer, err := c.do(ctx, http.MethodPost, wire.PathSessions, nil, bytes.NewReader(b))
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, wire.MaxDocument)).Decode(&s); err != nil {
		return s, lost(ctx, err)
	}
	if err := s.Check(); err != nil {
		return s, fmt.Errorf("%w: %w", ErrConnectionLost, err)
	}
	if s.ID != spec.ID || s.Driver != spec.Driver {
		return s, fmt.Errorf("%w: asked for session %s of %s, it came as %s of %s", ErrConnectionLost, spec.ID, spec.Driver, s.ID, s.Driver)
	}
	return s, nil
}

// Sessions returns all running interpreters.
func (c *Client) Sessions(ctx context.Context) ([]wire.Session, error) {
	return list[wire.Session](ctx, c, wire.PathSessions)
}

// EndSession ends an interpreter.
func (c *Client) EndSession(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, of(wire.PathSession, id), nil)
}

// InterruptSession interrupts what an interpreter runs.
func (c *Client) InterruptSession(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, of(wire.PathSessionInterrupt, id), nil)
}

// RunCell runs code in an interpreter and hands on what comes; show may be nil. When ctx ends or a writer fails, the cell is interrupted.
func (c *Client) RunCell(
	ctx context.Context, id string, cell wire.Cell, code io.Reader, stdout, stderr io.Writer, show func(wire.Display),
) (end wire.CellEnd, err error) {
	first, err := wire.DocumentFrame(wire.FrameCell, cell)
	if err != nil {
		return end, err
	}
	answer, err := c.do(ctx, http.MethodPost, of(wire.PathSessionRun, id), nil, body(first, code))
	if err != nil {
		return end, err
	}
	defer answer.Body.Close()
	frames := wire.NewReader(answer.Body)
	for {
		f, err := frames.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // the end comes last
			}
			return end, fmt.Errorf("follow a cell of session %s: %w", id, lost(ctx, err))
		}
		switch f.Type {
		case wire.FrameStdout:
			_, err = stdout.Write(f.Payload)
		case wire.FrameStderr:
			_, err = stderr.Write(f.Payload)
		case wire.FrameDisplay:
			var d wire.Display
			if err = f.Decode(&d); err == nil && show != nil {
				show(d)
			}
		case wire.FrameCellEnd:
			return cellEnd(f)
		case wire.FrameAlive, wire.FrameCommand, wire.FrameStarted, wire.FrameLost, wire.FrameExit, wire.FrameChange, wire.FrameCell:
		}
		if err != nil {
			return end, err
		}
	}
}

func cellEnd(f wire.Frame) (end wire.CellEnd, err error) {
	if err := f.Decode(&end); err != nil {
		return end, err
	}
	if err := end.Check(); err != nil {
		return end, fmt.Errorf("%w: %w", wire.ErrFrame, err)
	}
	end.Error, end.Message = plain(end.Error), plain(end.Message)
	return end, nil
}
