package cli

import (
	"context"
	"io"
)

// stdin is standard input until ctx ends: neither a person who has not typed the end of the text nor a pipe that nobody writes to
// keeps a command that is told to stop.
func (a *App) stdin(ctx context.Context) io.Reader { return &untilDone{ctx, a.Stdin} }

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
	// A buffer of its own: the read goes on when nobody waits for it any more, until the process ends.
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
