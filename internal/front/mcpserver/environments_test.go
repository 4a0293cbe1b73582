package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// desk is a repository's environments, whose files are in memory.
type desk struct {
	mu  sync.Mutex
	all map[string]*deskEnvironment
	// Of a slow Rebuild.
	begun, goOn chan struct{}
}

type deskEnvironment struct {
	d     *desk
	id    string
	title string
	files map[string]string
	built SandboxConfig
	turn  sync.Mutex
}

func newDesk() *desk {
	return &desk{all: map[string]*deskEnvironment{}, begun: make(chan struct{}), goOn: make(chan struct{})}
}

func (d *desk) Create(_ context.Context, q SandboxRequest) (SandboxInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.Ref == "nope" {
		return SandboxInfo{}, &WrongError{errors.New("no such ref")}
	}
	e := &deskEnvironment{d: d, id: fmt.Sprintf("e%d", len(d.all)+1), title: q.Title, files: map[string]string{}}
	d.all[e.id] = e
	return e.info(), nil
}

func (d *desk) List(context.Context) ([]SandboxInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []SandboxInfo{}
	for _, id := range slices.Sorted(maps.Keys(d.all)) {
		all = append(all, d.all[id].info())
	}
	return all, nil
}

func (d *desk) Open(_ context.Context, id string) (Sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.all[id]; e != nil {
		return e, nil
	}
	return nil, &WrongError{fmt.Errorf("there are %s", strings.Join(slices.Sorted(maps.Keys(d.all)), ", "))}
}

func (e *deskEnvironment) info() SandboxInfo { return SandboxInfo{ID: e.id, Title: e.title} }

func (e *deskEnvironment) Info(context.Context) (SandboxInfo, error) { return e.info(), nil }

func (e *deskEnvironment) Run(_ context.Context, c SandboxCommand) (SandboxResult, error) {
	switch c.Command {
	case "fail":
		return SandboxResult{ExitCode: 3, Stderr: "no\xff"}, nil
	case "away":
		return SandboxResult{}, errors.New("the engine is away")
	}
	return SandboxResult{Stdout: c.Command + string(c.Shell) + e.title + c.Explanation}, nil
}

func (e *deskEnvironment) Read(_ context.Context, path string, _ int64) ([]byte, error) {
	s, ok := e.files[path]
	if !ok {
		return nil, errors.New("no such file")
	}
	return []byte(s), nil
}

func (e *deskEnvironment) List(context.Context, string) ([]SandboxFile, error) {
	return make([]SandboxFile, maxListed+5), nil
}

func (e *deskEnvironment) Write(_ context.Context, path string, content []byte, subject string) (SandboxChange, error) {
	if path == "\x00" {
		return SandboxChange{}, fmt.Errorf("path: %w", sandbox.ErrInvalidSpec)
	}
	e.files[path] = string(content)
	return SandboxChange{Commit: subject}, nil
}

func (e *deskEnvironment) Delete(_ context.Context, path string) (SandboxChange, error) {
	delete(e.files, path)
	return SandboxChange{}, nil
}

func (e *deskEnvironment) Update(_ context.Context, title string) (SandboxInfo, error) {
	e.title = title
	return e.info(), nil
}

func (e *deskEnvironment) Rebuild(_ context.Context, c SandboxConfig) (SandboxInfo, error) {
	if c.Network == "slow" {
		e.d.begun <- struct{}{}
		<-e.d.goOn
		e.title = "anew"
	}
	e.built = c
	if c.BaseImage == "wrong" {
		return e.info(), &WrongError{errors.New("no such image")}
	}
	return e.info(), nil
}

func (e *deskEnvironment) Checkpoint(_ context.Context, name string) (SandboxCheckpoint, error) {
	return SandboxCheckpoint{Tag: name}, nil
}

func (e *deskEnvironment) Log(context.Context) (string, error)  { return "a log", nil }
func (e *deskEnvironment) Diff(context.Context) (string, error) { return "", errors.New("no diff") }
func (e *deskEnvironment) Close(context.Context)                {}

func (e *deskEnvironment) Turn(context.Context) (done func(), err error) {
	e.turn.Lock()
	return e.turn.Unlock, nil
}

// ask is the first text of an answer and the last, or the code of an error. Every tool is told why it is called.
func ask(t *testing.T, c *mcp.ClientSession, tool string, args map[string]any) (first, last string, failed bool, code int64) {
	t.Helper()
	args = maps.Clone(args)
	args["explanation"] = "why"
	got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "environment_" + tool, Arguments: args})
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return "", "", true, e.Code
	}
	if err != nil {
		t.Fatal(err)
	}
	text := func(i int) string { return got.Content[i].(*mcp.TextContent).Text }
	return text(0), text(len(got.Content) - 1), got.IsError, 0
}

func TestEnvironmentTools(t *testing.T) {
	t.Parallel()
	for _, single := range []bool{false, true} {
		c := connectTo(t, New(Options{Sandboxes: newDesk(), Single: single}), nil)
		list, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			required, isList := tool.InputSchema.(map[string]any)["required"].([]any)
			if has, null := tool.InputSchema.(map[string]any)["required"]; null && !isList {
				t.Errorf("%s requires %v", tool.Name, has)
			}
			needs := slices.Contains(required, any("environment_id"))
			if title := tool.Name == "environment_create" || tool.Name == "environment_update"; title != slices.Contains(required, any("title")) {
				t.Errorf("%s needs a title: %t", tool.Name, !title)
			}
			if named := tool.Name != "environment_create" && tool.Name != "environment_list"; needs != (named && !single || tool.Name == "environment_open") {
				t.Errorf("%s needs an id: %t", tool.Name, needs)
			}
		}
		for _, tool := range list.Tools {
			if _, there := tool.InputSchema.(map[string]any)["properties"].(map[string]any)["explanation"]; !there {
				t.Errorf("%s takes no explanation", tool.Name)
			}
		}
		// The definitions are small: a model reads them with each of its calls.
		b, err := json.Marshal(list)
		if err != nil || len(list.Tools) != 15 || len(b) > 6500 || c.InitializeResult().Instructions == "" {
			t.Errorf("%d tools of %d bytes, %v", len(list.Tools), len(b), err)
		}
	}
}

func TestEnvironmentCalls(t *testing.T) {
	t.Parallel()
	d := newDesk()
	s := New(Options{Sandboxes: d})
	c := connectTo(t, s, nil)
	if first, last, failed, _ := ask(t, c, "create", map[string]any{"title": "x"}); failed || !strings.Contains(first, `"id":"e1"`) || !strings.HasSuffix(last, "\nsandbox-agent log e1\nsandbox-agent diff e1\nsandbox-agent checkout e1") {
		t.Errorf("%s %s", first, last)
	}
	for name, row := range map[string]struct {
		tool  string
		args  map[string]any
		text  string
		fails bool
		code  int64
	}{
		"no title":          {tool: "create", args: map[string]any{"title": " "}, code: jsonrpc.CodeInvalidParams},
		"no such ref":       {tool: "create", args: map[string]any{"title": "x", "from_git_ref": "nope"}, code: jsonrpc.CodeInvalidParams},
		"another argument":  {tool: "create", args: map[string]any{"title": "x", "repo": "/"}, code: jsonrpc.CodeInvalidParams},
		"unknown":           {tool: "log", args: map[string]any{"environment_id": "e9"}, code: jsonrpc.CodeInvalidParams},
		"without an id":     {tool: "run_cmd", args: map[string]any{"command": "true"}, code: jsonrpc.CodeInvalidParams},
		"a command":         {tool: "run_cmd", args: map[string]any{"environment_id": "e1", "command": "true", "shell": "zsh"}, text: `"stdout":"truezshxwhy`},
		"no command":        {tool: "run_cmd", args: map[string]any{"environment_id": "e1", "command": ""}, code: jsonrpc.CodeInvalidParams},
		"another shell":     {tool: "run_cmd", args: map[string]any{"environment_id": "e1", "command": "1", "shell": "python"}, code: jsonrpc.CodeInvalidParams},
		"a timeout":         {tool: "run_cmd", args: map[string]any{"environment_id": "e1", "command": "1", "timeout": -1}, code: jsonrpc.CodeInvalidParams},
		"a failing command": {tool: "run_cmd", args: map[string]any{"environment_id": "e1", "command": "fail"}, text: `"exit_code":3`, fails: true},
		"no engine":         {tool: "run_cmd", args: map[string]any{"environment_id": "e1", "command": "away"}, text: "away", fails: true},
		"open":              {tool: "open", args: map[string]any{"environment_id": "e1"}, text: `"id":"e1"`},
		"no such file":      {tool: "file_read", args: map[string]any{"environment_id": "e1", "target_file": "none"}, text: "no such file", fails: true},
		"many files":        {tool: "file_list", args: map[string]any{"environment_id": "e1"}, text: `"more":5`},
		"no path":           {tool: "file_write", args: map[string]any{"environment_id": "e1", "target_file": "\x00", "contents": "x"}, code: jsonrpc.CodeInvalidParams},
		"no contents":       {tool: "file_write", args: map[string]any{"environment_id": "e1", "target_file": "x"}, code: jsonrpc.CodeInvalidParams},
		"nothing to change": {tool: "config", args: map[string]any{"environment_id": "e1", "config": map[string]any{}}, code: jsonrpc.CodeInvalidParams},
		"an unknown change": {tool: "config", args: map[string]any{"environment_id": "e1", "config": map[string]any{"privileged": true}}, code: jsonrpc.CodeInvalidParams},
		"a wrong change":    {tool: "config", args: map[string]any{"environment_id": "e1", "config": map[string]any{"base_image": "wrong"}}, code: jsonrpc.CodeInvalidParams},
		"a nameless one":    {tool: "add_service", args: map[string]any{"environment_id": "e1", "image": "redis"}, code: jsonrpc.CodeInvalidParams},
		"a checkpoint":      {tool: "checkpoint", args: map[string]any{"environment_id": "e1", "name": "one"}, text: `"tag":"one"`},
		"of a path":         {tool: "checkpoint", args: map[string]any{"environment_id": "e1", "name": "../x"}, code: jsonrpc.CodeInvalidParams},
		"log":               {tool: "log", args: map[string]any{"environment_id": "e1"}, text: "a log"},
		"diff":              {tool: "diff", args: map[string]any{"environment_id": "e1"}, text: "no diff", fails: true},
	} {
		first, last, failed, code := ask(t, c, row.tool, row.args)
		if code != row.code || code == 0 && (failed != row.fails || !strings.Contains(first, row.text) || !strings.HasSuffix(last, "\nsandbox-agent checkout e1")) {
			t.Errorf("%s: %d, %t, %s, %s", name, code, failed, first, last)
		}
	}
	long := strings.Repeat("x", 1<<20)
	if _, _, _, code := ask(t, c, "log", map[string]any{"environment_id": long}); code != jsonrpc.CodeInvalidParams {
		t.Error(code)
	}
	if _, kept := s.turns.Load(long); kept {
		t.Error("an id that is none is kept")
	}
	ask(t, c, "config", map[string]any{"environment_id": "e1", "config": map[string]any{"env": map[string]any{"A": "1", "B": nil}, "setup_commands": []string{}}})
	if b := d.all["e1"].built; *b.Env["A"] != "1" || b.Env["B"] != nil || len(b.Env) != 2 || b.SetupCommands == nil {
		t.Errorf("%+v", b)
	}
	ask(t, c, "add_service", map[string]any{"environment_id": "e1", "name": "db", "image": "redis", "ports": []int{6379}})
	if b := d.all["e1"].built.Service; b == nil || b.Name != "db" || b.Ports[0] != 6379 {
		t.Errorf("%+v", b)
	}
	ask(t, c, "update", map[string]any{"environment_id": "e1", "title": "new"})
	if first, last, _, _ := ask(t, c, "list", map[string]any{}); !strings.Contains(first, `"title":"new"`) || !strings.Contains(first, `"current":"e1"`) || last != oneAtATime {
		t.Errorf("%s %s", first, last)
	}
}

// A client of a single one works in one environment, and another client in another.
func TestSingleEnvironment(t *testing.T) {
	t.Parallel()
	s := New(Options{Sandboxes: newDesk(), Single: true})
	c := connectTo(t, s, nil)
	in := func() string {
		t.Helper()
		_, last, _, code := ask(t, c, "run_cmd", map[string]any{"command": "true"})
		if code != 0 {
			return ""
		}
		return last[strings.LastIndexByte(last, ' ')+1:]
	}
	if got := in(); got != "" {
		t.Error(got)
	}
	ask(t, c, "create", map[string]any{"title": "x"})
	if got := in(); got != "e1" {
		t.Error(got)
	}
	if _, _, failed, code := ask(t, c, "create", map[string]any{"title": "x"}); !failed || code != 0 || in() != "e1" {
		t.Error("there is another")
	}
	if _, _, failed, _ := ask(t, c, "create", map[string]any{"title": "x", "allow_replace": true}); failed || in() != "e2" {
		t.Error("there is no other")
	}
	ask(t, c, "open", map[string]any{"environment_id": "e1"})
	if got := in(); got != "e1" {
		t.Error(got)
	}
}

// A command waits until the environment is made anew: what it changed would be lost.
func TestCommandDuringRebuild(t *testing.T) {
	t.Parallel()
	d := newDesk()
	s := New(Options{Sandboxes: d})
	one, two := connectTo(t, s, nil), connectTo(t, s, nil)
	ask(t, one, "create", map[string]any{"title": "x"})
	var calls sync.WaitGroup
	calls.Go(func() {
		ask(t, one, "config", map[string]any{"environment_id": "e1", "config": map[string]any{"network": "slow"}})
	})
	<-d.begun
	calls.Go(func() {
		if first, _, _, _ := ask(t, two, "run_cmd", map[string]any{"environment_id": "e1", "command": "true"}); !strings.Contains(first, "trueanew") {
			t.Error(first)
		}
	})
	if s.turn("e1").TryAcquire(1) {
		t.Error("others use it")
	}
	close(d.goOn)
	calls.Wait()
}

// Whoever waits to make an environment anew leaves when its client does, and keeps nobody out then.
func TestTurnLeft(t *testing.T) {
	t.Parallel()
	s := New(Options{Sandboxes: newDesk()})
	done, err := s.used(t.Context(), "e1", false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.used(ctx, "e1", true); err == nil {
		t.Error("it is in use")
	}
	if _, err := s.used(t.Context(), "e1", false); err != nil {
		t.Error(err)
	}
	done()
}

// What two clients of two servers change at once in one file is all there.
func TestEditsOfTwoServers(t *testing.T) {
	t.Parallel()
	d := newDesk()
	one, two := connectTo(t, New(Options{Sandboxes: d}), nil), connectTo(t, New(Options{Sandboxes: d}), nil)
	ask(t, one, "create", map[string]any{"title": "x"})
	var lines strings.Builder
	const edits = 50
	for n := range edits {
		fmt.Fprintf(&lines, "<%d>\n", n)
	}
	ask(t, one, "file_write", map[string]any{"environment_id": "e1", "target_file": "f", "contents": lines.String()})
	var calls sync.WaitGroup
	for n := range edits {
		c := []*mcp.ClientSession{one, two}[n%2]
		calls.Go(func() {
			ask(t, c, "file_edit", map[string]any{"environment_id": "e1", "target_file": "f", "search_text": fmt.Sprintf("<%d>", n), "replace_text": "done"})
		})
	}
	calls.Wait()
	if got := d.all["e1"].files["f"]; got != strings.Repeat("done\n", edits) {
		t.Error(got)
	}
}

func TestLinesOf(t *testing.T) {
	t.Parallel()
	at := func(n int) *int { return &n }
	long := strings.Repeat("x", maxText) + "\ny\n"
	for name, row := range map[string]struct {
		text       string
		start, end *int
		want       string
		note, bad  bool
	}{
		"all":                  {text: "a\nb", want: "a\nb"},
		"the last without \\n": {text: "a\nb", start: at(2), end: at(2), want: "b"},
		"the first":            {text: "a\nb", start: at(1), end: at(1), want: "a\n"},
		"the last with \\n":    {text: "a\nb\n", start: at(2), end: at(9), want: "b\n"},
		"from":                 {text: "a\nb\nc", start: at(2), want: "b\nc"},
		"to":                   {text: "a\nb\nc", end: at(2), want: "a\nb\n"},
		"behind the end":       {text: "a\n", start: at(2), bad: true},
		"zero":                 {text: "a\n", start: at(0), bad: true},
		"backwards":            {text: "a\nb\n", start: at(2), end: at(1), bad: true},
		"of an empty one":      {note: true},
		"only a line end":      {text: "\n", want: "\n"},
		"too long a line":      {text: long, want: long[:maxText], note: true},
		"behind it":            {text: long, start: at(2), want: "y\n"},
		"as much as there is":  {text: strings.Repeat("abc\n", maxText), want: strings.Repeat("abc\n", maxText/4), note: true},
	} {
		part, note, err := linesOf(row.text, row.start, row.end)
		if part != row.want || (note != "") != row.note || (err != nil) != row.bad {
			t.Errorf("%s: %d bytes, %q, %v", name, len(part), note, err)
		}
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	d := newDesk()
	c := connectTo(t, New(Options{Sandboxes: d, Single: true}), nil)
	ask(t, c, "create", map[string]any{"title": "x"})
	edit := func(search, replace, which string) (failed bool, all struct {
		Matches []match
		More    int
	},
	) {
		t.Helper()
		first, _, failed, code := ask(t, c, "file_edit", map[string]any{"target_file": "f", "search_text": search, "replace_text": replace, "which_match": which})
		_ = json.Unmarshal([]byte(first), &all) // another text has none
		return failed || code != 0, all
	}
	file := func() string { return d.all["e1"].files["f"] }
	ask(t, c, "file_write", map[string]any{"target_file": "f", "contents": "one\né two\none\n\xe2\x82\xac one"})
	if failed, _ := edit("é two", "2", ""); failed || file() != "one\n2\none\n€ one" {
		t.Errorf("%q", file())
	}
	failed, all := edit("one", "1", "")
	if !failed || len(all.Matches) != 3 || all.Matches[1].Line != 3 || !strings.Contains(all.Matches[2].Context, "€ one") || all.Matches[0].ID == all.Matches[1].ID {
		t.Fatalf("%+v", all)
	}
	if failed, _ := edit("one", "1", all.Matches[1].ID); failed || file() != "one\n2\n1\n€ one" {
		t.Errorf("%q", file())
	}
	// The ids are of the content: those of before are none.
	if failed, now := edit("one", "1", all.Matches[2].ID); !failed || len(now.Matches) != 2 {
		t.Errorf("%+v", now)
	}
	for _, search := range []string{"", "none"} {
		if failed, _ := edit(search, "x", ""); !failed {
			t.Errorf("%q is there", search)
		}
	}
	if failed, _ := edit("\n2\n1\n", "", ""); failed || file() != "one€ one" {
		t.Errorf("%q", file())
	}
	ask(t, c, "file_write", map[string]any{"target_file": "f", "contents": strings.Repeat("a", 1<<20)})
	if failed, all := edit("a", "b", ""); !failed || len(all.Matches) != maxMatches || all.More != 1<<20-maxMatches || len(all.Matches[0].Context) > 700 {
		t.Errorf("%d, %d", len(all.Matches), all.More)
	}
}
