// Package mcpserver lets agents run code, over the Model Context Protocol: one tool, whose definition has the same size whatever environments there are.
package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
)

// schema is that of the tool's arguments.
const schema = `{"type":"object","additionalProperties":false,"required":["code","env"],"properties":{"code":{"type":"string"},"env":{"type":"string"},"session":{"type":"string"}}}`

// arguments are the tool's.
type arguments struct {
	Code    *string `json:"code"`
	Env     *string `json:"env"`
	Session string  `json:"session"`
}

// Runner runs code.
type Runner interface {
	Run(ctx context.Context, q code.Request) (code.Result, error)
	Environments() []code.Environment
}

// New returns a server that runs code by r.
func New(r Runner, version string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sandbox-agent", Version: version}, nil)
	var names []string
	for _, e := range r.Environments() {
		names = append(names, e.Name)
	}
	s.AddTool(&mcp.Tool{
		Name: "run",
		Description: "Run code in an isolated sandbox and return its output. Without session every call starts clean; with one, variables and files stay. Environments: " +
			strings.Join(names, ", ") + ".",
		InputSchema: json.RawMessage(schema),
	}, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return run(ctx, r, q.Params.Arguments)
	})
	return s
}

// run answers a call. What is wrong with the call is an error of the protocol; code that fails is a result.
func run(ctx context.Context, r Runner, raw json.RawMessage) (*mcp.CallToolResult, error) {
	var a arguments
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return nil, invalid(fmt.Errorf("arguments: %w", err))
	}
	if a.Code == nil || a.Env == nil {
		return nil, invalid(errors.New("arguments: code and env are needed"))
	}
	res, err := r.Run(ctx, code.Request{Env: *a.Env, Code: *a.Code, Session: a.Session})
	if _, unknown := errors.AsType[*code.UnknownError](err); unknown || errors.Is(err, sandbox.ErrSpec) {
		return nil, invalid(err)
	}
	if err != nil {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text.Clean(err.Error())}}}, nil
	}
	said := res.Text()
	if res.Fresh && res.Session != "" && said == "" {
		said = fmt.Sprintf("Session %s is new.", res.Session)
	}
	return &mcp.CallToolResult{IsError: res.ExitCode != 0, Content: []mcp.Content{&mcp.TextContent{Text: said}}}, nil
}

func invalid(err error) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
}
