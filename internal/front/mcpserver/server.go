// Package mcpserver lets agents run code, hand out tasks and work in environments that they keep, over the Model
// Context Protocol: few tools, whose definitions have the same size whatever environments there are.
package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
)

// arguments are those of run.
type arguments struct {
	Code    string `json:"code"`
	Env     string `json:"env"`
	Session string `json:"session,omitempty"`
	Max     *int   `json:"max_output_bytes,omitempty"`
}

// Runner runs code.
type Runner interface {
	Run(ctx context.Context, q code.Request) (code.Result, error)
	Presets() []code.Preset
	// EndClient ends the sessions of a client that is gone.
	EndClient(ctx context.Context, client string)
}

// Options are what a server offers.
type Options struct {
	Version string
	Runner  Runner // has the tool run; nil: there is none
	Tasks   Tasks  // has the tools for tasks; nil: there are none
	// Sandboxes has the tools for environments; nil: there are none.
	Sandboxes Sandboxes
	// Single has a client work in one environment at a time, which it need not name.
	Single bool
	Log    *slog.Logger
}

// Server offers tools to agents. Each client has sessions of its own, which end with it.
type Server struct {
	mcp *mcp.Server
	o   Options

	mu          sync.Mutex
	clients     map[*mcp.ServerSession]*client
	current     map[string]string // the environment that a client works in, by the client's ID
	over        bool
	description string         // of run, as clients know it
	work        sync.WaitGroup // a turn for each client
	turns       sync.Map       // a turn for each environment, by its ID
}

// New returns a server.
func New(o Options) *Server {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	how := &mcp.ServerOptions{Logger: o.Log, Capabilities: &mcp.ServerCapabilities{}}
	if o.Sandboxes != nil {
		how.Instructions = briefing
	}
	s := &Server{
		o: o, clients: map[*mcp.ServerSession]*client{}, current: map[string]string{},
		mcp: mcp.NewServer(&mcp.Implementation{Name: "sandbox-agent", Version: o.Version}, how),
	}
	s.Changed()
	if o.Tasks != nil {
		s.addTasks()
	}
	if o.Sandboxes != nil {
		s.addSandboxTools()
	}
	return s
}

// Changed tells clients of other environments. It may be called at any time.
func (s *Server) Changed() {
	if s.o.Runner == nil {
		return
	}
	var names []string
	for _, p := range s.o.Runner.Presets() {
		names = append(names, p.Name)
	}
	description := "Run code in an isolated sandbox and return its output. Without session every call starts clean; " +
		"with one, variables and files stay. Environments: " + strings.Join(names, ", ") + "."
	s.mu.Lock()
	defer s.mu.Unlock()
	if description == s.description {
		return
	}
	s.description = description
	add(s, &mcp.Tool{Name: "run", Description: description}, s.run)
}

// add offers a tool whose arguments are an A. An invalid call is a protocol error, and a failure is a result.
func add[A any](s *Server, t *mcp.Tool, do func(ctx context.Context, client string, a *A) (*mcp.CallToolResult, error)) {
	schema := schemaOf[A](s.o.Single)
	t.InputSchema = schema
	s.mcp.AddTool(t, func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		c := s.client(ctx, q.Session)
		ctx, done := c.begin(ctx)
		defer done()
		began := time.Now()
		a := new(A)
		err := read(q.Params.Arguments, schema, a)
		var res *mcp.CallToolResult
		if err == nil {
			res, err = do(ctx, c.id, a)
		}
		s.o.Log.Info("call", "tool", t.Name, "client", c.id, "took", time.Since(began), "failed", res != nil && res.IsError, "error", err)
		return res, err
	})
}

// Run serves one client, until it is gone or ctx ends.
func (s *Server) Run(ctx context.Context, t mcp.Transport) error {
	defer context.AfterFunc(ctx, s.end)()
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = s.mcp.Run(ctx, t)
		s.work.Wait()
	}()
	select {
	case <-ended:
		if ctx.Err() == nil {
			return err
		}
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(drainTime): // its client takes no answers; the caller removes what their calls have
		}
	}
	return nil // it was stopped, and ends as it should
}

func (s *Server) run(ctx context.Context, client string, a *arguments) (*mcp.CallToolResult, error) {
	most := defaultOutput
	if a.Max != nil {
		most = *a.Max
	}
	if most < 1 || most > sandbox.DefaultMaxOutput {
		return nil, invalid(fmt.Errorf("arguments: max_output_bytes must be between 1 and %d", sandbox.DefaultMaxOutput))
	}
	shown := pictures{text: most / 2} // the other half is for printed text
	out, errOut := text.NewHeadTail(most), text.NewHeadTail(most)
	res, err := s.o.Runner.Run(ctx, code.Request{
		Preset: a.Env, Code: a.Code, Session: a.Session, Client: client, Stdout: out, Stderr: errOut,
		Display: shown.add,
	})
	if _, unknown := errors.AsType[*code.UnknownPresetError](err); unknown || errors.Is(err, sandbox.ErrInvalidSpec) {
		return nil, invalid(err)
	}
	if err != nil {
		return failed(err), nil
	}
	bound(&res, out, errOut, most-(most/2-shown.text))
	said := res.Text()
	if res.Created && res.Session != "" && said == "" && len(shown.all) == 0 {
		said = fmt.Sprintf("Session %s is new.", res.Session)
	}
	return &mcp.CallToolResult{IsError: res.ExitCode != 0, Content: shown.content(said)}, nil
}

// defaultOutput bounds the text of an answer of run, in bytes: a model reads all of it, and clients refuse what is
// larger than some 25,000 tokens.
const defaultOutput = 24 << 10

// bound puts into a result what a model is to read of its output and value, most bytes of all: notices of what was left out come on top.
func bound(res *code.Result, out, errOut *text.HeadTail, most int) {
	const valuePart, half = 4, 2
	_, _ = out.Write([]byte(res.Stdout)) // what the runner collected all the same
	_, _ = errOut.Write([]byte(res.Stderr))
	value := text.NewHeadTail(max(most/valuePart, most-out.Len()-errOut.Len()))
	_, _ = value.Write([]byte(res.Value))
	most -= value.Len()
	if out.Len()+errOut.Len() > most {
		errOut.Limit(max(most/half, most-out.Len()))
		out.Limit(most - min(errOut.Len(), most))
	}
	valid := func(e *text.HeadTail) string { return string(bytes.ToValidUTF8(e.Bytes(), []byte("\uFFFD"))) }
	res.Stdout, res.Stderr, res.Value = valid(out), valid(errOut), valid(value)
}

// failed is the result of a call that could not be carried out.
func failed(err error) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: told(err)}}}
}

func invalid(err error) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: told(err)}
}

// maxError bounds an error, in characters: a model reads all of it, and what it names may be a path of a megabyte.
const maxError = 2000

func told(err error) string { return text.Runes(text.Clean(err.Error()), maxError) }
