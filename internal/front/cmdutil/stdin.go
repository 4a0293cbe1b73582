package cmdutil

import (
	"context"
	"io"
)

// Input returns standard input until ctx ends, so that an unfinished input, from a person or a pipe, does not block a command that is
// asked to stop.
func (s *IO) Input(ctx context.Context) io.Reader { return &untilDone{ctx, s.Stdin} }

type untilDone struct {
	ctx context.Context
	in  io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if u.in == nil {
		return 0, io.EOF
	}
	type part struct {
		b   []byte
		err error
	}
	read := make(chan part, 1)
	// The read needs its own buffer: it can outlive this call, until the process ends.
	b := make([]byte, len(p))
	go func() {
		n, err := u.in.Read(b)
		read <- part{b[:n], err}
	}()
	select {
	case <-u.ctx.Done():
		return 0, context.Cause(u.ctx)
	case got := <-read:
		return copy(p, got.b), got.err
	}
}
