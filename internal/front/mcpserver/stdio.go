package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Stdio has messages a line each, as a client's pipes do. The SDK's own ends with the first line that is none; here
// such a line is answered with an error, and those after it count.
func Stdio(in io.Reader, out io.Writer) mcp.Transport {
	w := &wholeWriter{w: out}
	return &stdio{mcp.IOTransport{Reader: io.NopCloser(&messages{in: bufio.NewReader(in), out: w}), Writer: w}, out}
}

type stdio struct {
	mcp.IOTransport
	out io.Writer
}

func (t *stdio) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.IOTransport.Connect(ctx)
	return &lasting{Connection: c, out: t.out, asked: map[jsonrpc.ID]bool{}}, err
}

// wholeWriter writes one message at a time.
type wholeWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *wholeWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// Close leaves the client's pipe open: it ends with the program.
func (w *wholeWriter) Close() error { return nil }

// messages reads the lines that are messages.
type messages struct {
	in   *bufio.Reader
	out  io.Writer
	rest []byte // of the last one
}

func (m *messages) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		line, err := m.line()
		if err != nil {
			return 0, err
		}
		m.rest = line
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// line is the next message with its end, or nil for a line that is none.
func (m *messages) line() ([]byte, error) {
	line, err := m.read()
	if errors.Is(err, errTooLong) {
		return nil, m.refuse(jsonrpc.CodeInvalidRequest, "a message has more than 16 MiB")
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil, err
	}
	if !json.Valid(line) {
		return nil, m.refuse(jsonrpc.CodeParseError, "a line is not JSON: each message is one line")
	}
	each, bad := decodable(line)
	if bad != nil {
		var answer struct{ Result, Error json.RawMessage }
		if json.Unmarshal(line, &answer) == nil && (answer.Result != nil || answer.Error != nil) {
			return nil, err // two that answer each other's errors would never end
		}
		return nil, m.refuse(jsonrpc.CodeInvalidRequest, "no message of JSON-RPC 2.0: "+bad.Error())
	}
	return each, nil // an end of the input comes again
}

// decodable is JSON that is a message, or an array of them, with a line for each: the SDK ends with an array that its
// protocol does not have, and with two notifications in one.
func decodable(line []byte) (each []byte, err error) {
	all := []json.RawMessage{line}
	if line[0] == '[' {
		if err := json.Unmarshal(line, &all); err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, errors.New("an empty array")
		}
	}
	for _, one := range all {
		if _, err := jsonrpc.DecodeMessage(one); err != nil {
			return nil, err
		}
		each = append(append(each, one...), '\n')
	}
	return each, nil
}

var errTooLong = errors.New("the line is too long")

// read reads a line. Of one that is too long nothing is kept.
func (m *messages) read() ([]byte, error) {
	var line []byte
	var tooLong bool
	for {
		part, err := m.in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > mcp.DefaultMaxLineLength; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case tooLong && err == nil:
			return nil, errTooLong
		case err != nil && len(line) > 0:
			return line, nil // an end of the input comes again
		default:
			return line, err
		}
	}
}

// refuse answers what has no ID that one could rely on.
func (m *messages) refuse(code int64, why string) error {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": why}})
	if err != nil {
		return err
	}
	_, err = m.out.Write(append(b, '\n'))
	return err
}
