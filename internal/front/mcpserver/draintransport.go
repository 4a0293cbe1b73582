package mcpserver

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

// lastAnswers is how long what was asked may go on once the input has ended, as that of `printf … | sandbox-agent
// mcp`: a client that ends the server so does not wait long, and one that is gone waits for nothing.
const lastAnswers = 5 * time.Second

// lasting is a connection whose input ends once what was asked is answered.
type lasting struct {
	mcp.Connection
	out io.Writer

	mu    sync.Mutex
	asked map[jsonrpc.ID]bool
}

func (l *lasting) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := l.Connection.Read(ctx)
	if q, ok := m.(*jsonrpc.Request); ok && err == nil && q.ID.IsValid() {
		l.note(q.ID, true)
	}
	if !errors.Is(err, io.EOF) {
		return m, err
	}
	const look = 20 * time.Millisecond
	for end := time.Now().Add(lastAnswers); l.waits() && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(look):
		}
	}
	return m, err
}

// waits reports whether a client waits for an answer.
func (l *lasting) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked) > 0 && !deaf(l.out)
}

// deaf reports whether a pipe has no reader.
func deaf(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	p := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

func (l *lasting) Write(ctx context.Context, m jsonrpc.Message) error {
	err := l.Connection.Write(ctx, m)
	if a, ok := m.(*jsonrpc.Response); ok {
		l.note(a.ID, false)
	}
	return err
}

func (l *lasting) note(id jsonrpc.ID, asked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if asked {
		l.asked[id] = true
	} else {
		delete(l.asked, id)
	}
}
