// Package sshgate serves the terminals of sandboxes to SSH clients: one port for all sandboxes, their commands, files and ports, and a list to choose from.
//
// A client names a sandbox by its user name or by the first word of its command. A name is looked up, and never part of a command. What a client
// asks for happens in a sandbox, with the rights that commands there have: the machine that runs the gateway is not to be reached by it.
package sshgate

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// ErrNotFound is the error of Open where there is no sandbox of that name.
var ErrNotFound = errors.New("there is no such sandbox")

// Sandboxes are what a Server serves. Its methods may be called concurrently.
type Sandboxes interface {
	// List is all of them, by name; with an error those that could be seen. Names may be any text.
	List(ctx context.Context) ([]Row, error)
	// Open finds one by its name, which may be any text. The caller closes it.
	Open(ctx context.Context, name string) (Sandbox, error)
	// Create creates one as "up NAME" does. The name may be any text.
	Create(ctx context.Context, name string) error
	// Remove removes one with its files as "down NAME" does. The name may be any text.
	Remove(ctx context.Context, name string) error
}

// Row is a sandbox in the list.
type Row struct {
	Name, State string
	What        string // what it is made of
	Created     time.Time
}

// Sandbox is one that a client uses. Its methods may be called concurrently.
type Sandbox interface {
	// Run runs a command until it ends, and returns its exit code as a shell has it. When ctx ends, the command is ended.
	Run(ctx context.Context, c Command) (code int, err error)
	// Reach connects to a port of the sandbox's loopback.
	Reach(ctx context.Context, port int) (net.Conn, error)
	// Files is a server of SFTP for the sandbox's files.
	Files(ctx context.Context) (io.ReadWriteCloser, error)
	Close(ctx context.Context) error
}

// Command is what a client asks to be run.
type Command struct {
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
