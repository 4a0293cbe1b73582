package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
)

// echo is a runner that answers with the request.
type echo struct{ more int }

func (e echo) Presets() []code.Preset {
	all := code.BuiltinPresets()
	for range e.more {
		all = append(all, code.Preset{Name: "e"})
	}
	return all
}

func (echo) EndClient(context.Context, string) {}

func (echo) Run(_ context.Context, q code.Request) (code.Result, error) {
	switch q.Preset {
	case "python":
		fmt.Fprint(q.Stdout, q.Code+q.Session)
		return code.Result{}, nil
	case "prints":
		fmt.Fprint(q.Stdout, strings.Repeat("o", 1<<20), "end of output")
		fmt.Fprint(q.Stderr, strings.Repeat("e", 1<<20), "end of errors")
		q.Display(sandbox.Display{Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"` + strings.Repeat("d", 1<<20) + `"`)}})
		return code.Result{Value: strings.Repeat("v", 1<<20), Session: "s", Lost: true}, nil
	case "fails":
		fmt.Fprint(q.Stderr, "no")
		return code.Result{ExitStatus: sandbox.ExitStatus{ExitCode: 3}}, nil
	case "wrong":
		return code.Result{}, sandbox.ErrInvalidSpec
	case "shows":
		q.Display(sandbox.Display{Data: map[string]json.RawMessage{"image/png": picture("\x89PNG\x0d\x0a\x1a\x0a"), "text/html": picture("<b>"), "text/plain": json.RawMessage(`"<Figure>"`)}})
		q.Display(sandbox.Display{Data: map[string]json.RawMessage{"text/html": json.RawMessage(`"<b>"`), "text/latex": json.RawMessage(`"$x$"`), "text/plain": json.RawMessage(`"x"`)}})
		q.Display(sandbox.Display{Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"7"`)}, Result: true})
		q.Display(sandbox.Display{Data: map[string]json.RawMessage{"image/jpeg": picture("<html>"), "text/plain": json.RawMessage(`"no picture"`)}})
		q.Display(sandbox.Display{Data: map[string]json.RawMessage{"image/jpeg": picture("\xff\xd8\xff" + strings.Repeat("x", maxPicture))}})
		return code.Result{Value: "7"}, nil
	case "broken":
		return code.Result{}, sandbox.ErrUnavailable
	}
	return code.Result{}, &code.UnknownPresetError{Name: q.Preset, Available: []string{"python"}}
}

func picture(data string) json.RawMessage {
	b, _ := json.Marshal(base64.StdEncoding.EncodeToString([]byte(data)) + "\n") // a text always encodes
	return b
}

// connect is a client of the official SDK.
func connect(t *testing.T, r Runner) *mcp.ClientSession {
	t.Helper()
	return connectTo(t, New(Options{Runner: r}), nil)
}

func connectTo(t *testing.T, s *Server, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	ours, theirs := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, theirs) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "v1"}, o).Connect(t.Context(), ours, nil)
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
		"nothing":           {args: map[string]any{"env": "python", "code": "x", "max_output_bytes": 0}, code: jsonrpc.CodeInvalidParams},
		"too much":          {args: map[string]any{"env": "python", "code": "x", "max_output_bytes": 1 << 30}, code: jsonrpc.CodeInvalidParams},
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

// An answer has a bound, whatever prints, and the beginning and end of each stream are in it.
func TestBound(t *testing.T) {
	t.Parallel()
	c := connect(t, echo{})
	for most, args := range map[int]map[string]any{
		24 << 10:  {"env": "prints", "code": ""},
		1000:      {"env": "prints", "code": "", "max_output_bytes": 1000},
		100 << 10: {"env": "prints", "code": "", "max_output_bytes": 100 << 10},
	} {
		got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "run", Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, content := range got.Content {
			size += len(content.(*mcp.TextContent).Text)
		}
		said := got.Content[0].(*mcp.TextContent).Text
		const notices = 500
		if size < most || size > 2*most+notices || !strings.HasPrefix(said, "oo") {
			t.Errorf("%d: %d bytes", most, size)
		}
		for _, part := range []string{"end of output", "end of errors", "vv", (code.Result{Session: "s"}).LostNote()} {
			if !strings.Contains(said, part) {
				t.Errorf("%d: no %q in the answer", most, part)
			}
		}
	}
}

// Pictures come as pictures, and anything else as its text.
func TestPictures(t *testing.T) {
	t.Parallel()
	got, err := connect(t, echo{}).CallTool(t.Context(), &mcp.CallToolParams{Name: "run", Arguments: map[string]any{"env": "shows", "code": ""}})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, c := range got.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			kinds = append(kinds, strings.SplitN(c.Text, "\n", 2)[0])
		case *mcp.ImageContent:
			kinds = append(kinds, c.MIMEType+" "+string(c.Data[1:4]))
		}
	}
	if want := "7,image/png PNG,x,no picture"; strings.Join(kinds, ",") != want {
		t.Errorf("%q", kinds)
	}
	if said := got.Content[0].(*mcp.TextContent).Text; said == "7" {
		t.Error("nobody says that one is left out")
	}
}

func TestManyPictures(t *testing.T) {
	t.Parallel()
	p := pictures{text: 1}
	picture := func(data string) json.RawMessage { return picture("\x89PNG\x0d\x0a\x1a\x0a" + data) }
	large := sandbox.Display{Data: map[string]json.RawMessage{"image/png": picture(strings.Repeat("x", 1<<20))}}
	for range 100 {
		p.add(large)
	}
	if len(p.all) > maxShown || p.size > maxPictures || p.lost != 100-len(p.all) {
		t.Errorf("%d of %d bytes, %d lost", len(p.all), p.size, p.lost)
	}
}

// changing is a runner whose environments change.
type changing struct {
	echo
	more *atomic.Int32
}

func (c changing) Presets() []code.Preset { return echo{int(c.more.Load())}.Presets() }

// Clients hear of other environments, and of nothing else.
func TestChanged(t *testing.T) {
	t.Parallel()
	r := changing{more: &atomic.Int32{}}
	s := New(Options{Runner: r})
	heard := make(chan struct{}, 10)
	c := connectTo(t, s, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { heard <- struct{}{} }})
	s.Changed()
	r.more.Store(2)
	s.Changed()
	select {
	case <-heard:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was told")
	}
	list, err := c.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 || !strings.Contains(list.Tools[0].Description, "shell, e, e.") {
		t.Errorf("%+v, %v", list, err)
	}
	if len(heard) != 0 {
		t.Error("told twice")
	}
}
