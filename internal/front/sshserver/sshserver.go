// Package sshserver serves the terminals of sandboxes to SSH clients: one port for all sandboxes, their commands, files
// and ports, and a list to choose from.
//
// A client names a sandbox by its user name or by the first word of its command. A name is looked up, and never part of
// a command. What a client asks for happens in a sandbox, with the rights that commands there have: the machine that
// runs the gateway is not to be reached by it.
package sshserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// ErrNotFound is the error of Open where there is no sandbox of that name.
var ErrNotFound = errors.New("there is no such sandbox")

// Sandboxes are what a Server serves. Its methods may be called concurrently.
type Sandboxes interface {
	// List is all of them, by name; with an error those that could be seen. Names may be any text.
	List(ctx context.Context) ([]SandboxInfo, error)
	// Open finds one by its name, which may be any text. The caller closes it.
	Open(ctx context.Context, name string) (Sandbox, error)
	// Create creates one as "up NAME" does. The name may be any text.
	Create(ctx context.Context, name string) error
	// Remove removes one with its files as "down NAME" does. The name may be any text.
	Remove(ctx context.Context, name string) error
}

// SandboxInfo is a sandbox in the list.
type SandboxInfo struct {
	Name, State string
	What        string // what it is made of
	Created     time.Time
}

// Sandbox is one that a client uses. Its methods may be called concurrently.
type Sandbox interface {
	// Run runs a command until it ends, and returns its exit code as a shell has it. When ctx ends, the command is ended.
	Run(ctx context.Context, c ExecRequest) (code int, err error)
	// DialPort connects to a port of the sandbox's loopback.
	DialPort(ctx context.Context, port int) (net.Conn, error)
	// Files is a server of SFTP for the sandbox's files.
	Files(ctx context.Context) (io.ReadWriteCloser, error)
	Close(ctx context.Context) error
}

// ExecRequest is a command that a client requests.
type ExecRequest struct {
	// Line is for the sandbox's sh; "" is a shell: with a terminal the sandbox's own, which stays when the client goes.
	Line           string
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal is the size of the client's; nil means that it has none.
	Terminal *Size
	// Resized has the sizes that follow, Signals what the client sends the command.
	Resized <-chan Size
	Signals <-chan syscall.Signal
}

// Size is that of a terminal, in characters.
type Size struct{ Rows, Cols uint16 }

// maxKeys bounds a file of keys, in bytes: a thousand of them.
const maxKeys = 1 << 20

// fingerprint is the extension that names a client's key.
const fingerprint = "fingerprint"

// authorized lets a client in that has one of the keys.
func (s *Server) authorized(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	keys, err := s.o.Keys()
	if err != nil {
		s.o.Log.Error("read the keys that open the gateway", "error", err)
		return nil, err
	}
	shown := key.Marshal()
	for _, k := range keys {
		if bytes.Equal(k.Marshal(), shown) {
			return &ssh.Permissions{Extensions: map[string]string{fingerprint: ssh.FingerprintSHA256(key)}}, nil
		}
	}
	return nil, errors.New("the key is none of those that open the gateway")
}

// ReadKeys reads public keys, a line each as in OpenSSH's files. A line that it does not understand, or with options
// that it cannot hold, is an error: to let in without them would be more than was meant.
func ReadKeys(file string) ([]ssh.PublicKey, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKeys+1))
	if err == nil && len(b) > maxKeys {
		err = errors.New("it is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("read keys of %s: %w", file, err)
	}
	var keys []ssh.PublicKey
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err == nil && len(options) > 0 {
			err = errors.New("options of a key are not known here")
		}
		if _, ok := key.(*ssh.Certificate); ok {
			err = errors.New("it is a certificate, whose end and conditions are not held here: name its key")
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

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

// loopbacks are the names of the sandbox's own machine. Others are refused: the gateway's way into a sandbox is none
// out of it, around the rules of its network.
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
		return nil, errors.New("only ports of the sandbox itself, as localhost:8000, can be forwarded: not " +
			net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10)))
	}
	sb, _, err := c.own(ctx)
	if err != nil {
		return nil, err
	}
	if sb == nil {
		return nil, errors.New("no sandbox: its name is the user name, as in `ssh -L 8000:localhost:8000 NAME@HOST`")
	}
	return sb.DialPort(ctx, int(port))
}
