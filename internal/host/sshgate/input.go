package sshgate

import (
	"bytes"
	"context"
	"io"
)

// input is what a client types, for one reader after the other: what the picker has not read when it ends is the command's.
type input struct {
	parts chan []byte
	over  chan struct{} // closed at its end
}

// newInput reads until ctx ends, or the client's input does.
func newInput(ctx context.Context, r io.Reader) *input {
	in := &input{make(chan []byte), make(chan struct{})}
	go func() {
		defer close(in.over)
		for {
			part := make([]byte, 32<<10)
			n, err := r.Read(part)
			if n > 0 {
				select {
				case in.parts <- part[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return in
}

// reader reads until ctx ends, with that error, or the input does.
func (in *input) reader(ctx context.Context) io.Reader {
	return &inputReader{done: ctx.Done(), parts: in.parts, over: in.over}
}

// keys reads as reader does, but has no end: that of a terminal's input is a key, and a client that has gone has pressed none.
func (in *input) keys(ctx context.Context) io.Reader {
	return &inputReader{done: ctx.Done(), parts: in.parts}
}

type inputReader struct {
	done, over <-chan struct{}
	parts      <-chan []byte
	rest       []byte
}

func (r *inputReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		select {
		case r.rest = <-r.parts:
		case <-r.over:
			return 0, io.EOF
		case <-r.done:
			return 0, context.Canceled
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// terminal is a client's that has no line discipline: a line feed alone would only go down.
type terminal struct{ w io.Writer }

func (t terminal) Write(p []byte) (int, error) {
	if _, err := t.w.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}
