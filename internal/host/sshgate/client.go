package sshgate

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

type client struct {
	s    *Server
	only string // the one sandbox that there is to it; "": see name
	user string

	mu   sync.Mutex
	used map[string]Sandbox
}

// kinds are the channels that a client can open.
func (c *client) kinds() map[string]func(context.Context, ssh.NewChannel) {
	return map[string]func(context.Context, ssh.NewChannel){"session": c.session, "direct-tcpip": c.forward}
}

// open finds a sandbox, which the client's connection keeps.
func (c *client) open(ctx context.Context, name string) (Sandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sb := c.used[name]; sb != nil {
		return sb, nil
	}
	sb, err := c.s.o.Sandboxes.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	c.used[name] = sb
	return sb, nil
}

func (c *client) close(ctx context.Context) {
	for name, sb := range c.used {
		if err := sb.Close(ctx); err != nil {
			c.s.o.Log.Debug("leave a sandbox", "sandbox", name, "error", err)
		}
	}
}

// own is the sandbox that the client has named by its user name; nil where that is none's.
func (c *client) own(ctx context.Context) (sb Sandbox, name string, err error) {
	if c.only != "" {
		sb, err = c.open(ctx, c.only)
		return sb, c.only, err
	}
	sb, err = c.open(ctx, c.user)
	if errors.Is(err, ErrNotFound) {
		return nil, "", nil
	}
	return sb, c.user, err
}

// named is the sandbox that a command is for, and the rest of the line, which is the command. Without a name there is none.
func (c *client) named(ctx context.Context, line string) (sb Sandbox, name, rest string, err error) {
	if sb, name, err = c.own(ctx); sb != nil || err != nil {
		return sb, name, line, err
	}
	name, rest, _ = strings.Cut(strings.TrimLeft(line, " "), " ")
	if name == "" {
		return nil, "", "", nil
	}
	sb, err = c.open(ctx, name)
	return sb, name, strings.TrimLeft(rest, " "), err
}

// loopbacks are the names of the sandbox's own machine. Others are refused: the gateway's way into a sandbox is none out of it, around the rules of its
// network.
var loopbacks = map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}

// forward connects the client to a port of the sandbox that its user name names.
func (c *client) forward(ctx context.Context, n ssh.NewChannel) {
	var to struct {
		Host   string
		Port   uint32
		Origin string
		From   uint32
	}
	if err := ssh.Unmarshal(n.ExtraData(), &to); err != nil {
		_ = n.Reject(ssh.ConnectionFailed, "the request cannot be read")
		return
	}
	conn, err := c.dial(ctx, to.Host, to.Port)
	if err != nil {
		_ = n.Reject(ssh.ConnectionFailed, shown(err))
		return
	}
	defer conn.Close()
	ch, requests, err := n.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	go ssh.DiscardRequests(requests)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go send(conn, ch)
	_, _ = io.Copy(ch, conn) // its end is the connection's, for whatever reason
	_ = ch.CloseWrite()
}

// send sends what a client says, and its end, behind which what is said to the client may still come.
func send(to io.WriteCloser, from io.Reader) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
	} else {
		_ = to.Close()
	}
}

func (c *client) dial(ctx context.Context, host string, port uint32) (net.Conn, error) {
	if !loopbacks[host] || port == 0 || port > 65535 {
		return nil, errors.New("only ports of the sandbox itself, as localhost:8000, can be forwarded: not " + net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10)))
	}
	sb, _, err := c.own(ctx)
	if err != nil {
		return nil, err
	}
	if sb == nil {
		return nil, errors.New("no sandbox: its name is the user name, as in `ssh -L 8000:localhost:8000 NAME@HOST`")
	}
	return sb.Reach(ctx, int(port))
}
