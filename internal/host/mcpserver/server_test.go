package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
)

// echo is a runner that answers with the request.
type echo struct{ more int }

func (e echo) Environments() []code.Environment {
	all := code.Presets()
	for range e.more {
		all = append(all, code.Environment{Name: "e"})
	}
	return all
}

func (echo) Run(_ context.Context, q code.Request) (code.Result, error) {
	switch q.Env {
	case "python":
		return code.Result{Stdout: q.Code + q.Session}, nil
	case "fails":
		return code.Result{Stderr: "no", ExitCode: 3}, nil
	case "wrong":
		return code.Result{}, sandbox.ErrSpec
	case "broken":
		return code.Result{}, sandbox.ErrUnavailable
	}
	return code.Result{}, &code.UnknownError{Name: q.Env, Available: []string{"python"}}
}

// connect is a client of the official SDK.
func connect(t *testing.T, r Runner) *mcp.ClientSession {
	t.Helper()
	ours, theirs := mcp.NewInMemoryTransports()
	if _, err := New(r, "v1").Connect(t.Context(), theirs, nil); err != nil {
		t.Fatal(err)
	}
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "v1"}, nil).Connect(t.Context(), ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The definition grows by the names of environments only, and is small.
func TestDefinition(t *testing.T) {
	t.Parallel()
	var sizes []int
	for _, more := range []int{0, 27} {
		list, err := connect(t, echo{more}).ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != "run" {
			t.Fatalf("%+v, %v", list, err)
		}
		b, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(b))
	}
	if grown := sizes[1] - sizes[0]; grown != 27*len(", e") || sizes[1] > 1700 {
		t.Errorf("%v", sizes)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	c := connect(t, echo{})
	for name, row := range map[string]struct {
		args  map[string]any
		text  string
		fails bool  // as a result
		code  int64 // of an error of the protocol
	}{
		"python":            {args: map[string]any{"env": "python", "code": "x"}, text: "x"},
		"session":           {args: map[string]any{"env": "python", "code": "x", "session": "s"}, text: "xs"},
		"no code":           {args: map[string]any{"env": "python", "code": ""}},
		"fails":             {args: map[string]any{"env": "fails", "code": "x"}, text: "no", fails: true},
		"engine":            {args: map[string]any{"env": "broken", "code": "x"}, fails: true, text: sandbox.ErrUnavailable.Error()},
		"unknown":           {args: map[string]any{"env": "cobol", "code": "x"}, code: jsonrpc.CodeInvalidParams},
		"wrong":             {args: map[string]any{"env": "wrong", "code": "x"}, code: jsonrpc.CodeInvalidParams},
		"missing":           {args: map[string]any{"env": "python"}, code: jsonrpc.CodeInvalidParams},
		"another argument":  {args: map[string]any{"env": "python", "code": "x", "more": 1}, code: jsonrpc.CodeInvalidParams},
		"of another type":   {args: map[string]any{"env": "python", "code": 1}, code: jsonrpc.CodeInvalidParams},
		"session of number": {args: map[string]any{"env": "python", "code": "x", "session": 1}, code: jsonrpc.CodeInvalidParams},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "run", Arguments: row.args})
			if row.code != 0 {
				if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != row.code {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			said, ok := got.Content[0].(*mcp.TextContent)
			if !ok || said.Text != row.text || got.IsError != row.fails {
				t.Errorf("%+v", got)
			}
		})
	}
}
