package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestStdio: a line that is no message is answered with an error, and the server goes on.
func TestStdio(t *testing.T) {
	t.Parallel()
	in, lines := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error)
	go func() { ended <- New(Options{Runner: echo{}}).Run(t.Context(), Stdio(in, out)) }()
	r := bufio.NewReader(answers)
	for _, c := range []struct {
		line string
		code int64 // 0: an answer
		id   string
	}{
		{"garbage", jsonrpc.CodeParseError, "null"},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, 0, "1"},
		{"\n \r\n\r", 0, ""},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, 0, ""},
		{`{"jsonrpc":"2.0",`, jsonrpc.CodeParseError, "null"},
		{`{"a":1} {"b":2}`, jsonrpc.CodeParseError, "null"},
		{`{"jsonrpc":"1.0","id":2,"method":"ping"}`, jsonrpc.CodeInvalidRequest, "null"},
		{`{"jsonrpc":"2.0","id":2,"method":7}`, jsonrpc.CodeInvalidRequest, "null"},
		{`[]`, jsonrpc.CodeInvalidRequest, "null"},
		{`["x"]`, jsonrpc.CodeInvalidRequest, "null"},
		{`[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":4,"method":"ping"}]`, 0, "4"},
		{`7`, jsonrpc.CodeInvalidRequest, "null"},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"one of theirs"}}`, 0, ""},
		{`{"jsonrpc":"2.0","id":3,"method":"ping","params":{"x":"` + strings.Repeat("x", mcp.DefaultMaxLineLength) + `"}}`, jsonrpc.CodeInvalidRequest, "null"},
		{"\xff\xfe\x00", jsonrpc.CodeParseError, "null"},
		{`{"jsonrpc":"2.0","id":"\u0061","method":"ping"}` + "\r", 0, `"a"`},
	} {
		if _, err := io.WriteString(lines, c.line+"\n"); err != nil {
			t.Fatal(err)
		}
		if c.id == "" {
			continue
		}
		line, err := r.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			ID    json.RawMessage
			Error struct{ Code int64 }
		}
		if err := json.Unmarshal(line, &got); err != nil || got.Error.Code != c.code || string(got.ID) != c.id {
			t.Errorf("%.80q: %s, %v", c.line, line, err)
		}
	}
	// What was asked is answered though the input has ended.
	go func() {
		_, _ = io.WriteString(lines, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"run","arguments":{"env":"python","code":"last"}}}`)
		_ = lines.Close()
	}()
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, `"text":"last"`) {
		t.Errorf("%q, %v", line, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A client that takes no answers does not keep a server that is stopped.
func TestStdioStopped(t *testing.T) {
	t.Parallel()
	in, lines := io.Pipe()
	_, out := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- New(Options{Runner: echo{}}).Run(ctx, Stdio(in, out)) }()
	if _, err := io.WriteString(lines, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // its answer is being written
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * drainTime):
		t.Error("it goes on")
	}
}
