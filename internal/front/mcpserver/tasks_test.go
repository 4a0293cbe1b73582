package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// recorded are tasks that answer by their ID.
type recorded struct{}

func (recorded) Create(_ context.Context, q TaskRequest) (TaskStarted, error) {
	if q.Task == "" {
		return TaskStarted{}, &WrongError{errors.New("no task")}
	}
	return TaskStarted{ID: "T-" + q.Project + q.Repo}, nil
}

func (recorded) Status(_ context.Context, id string) (TaskStatus, error) {
	if id == "T-GONE" {
		return TaskStatus{}, &WrongError{errors.New("unknown")}
	}
	return TaskStatus{ID: id, State: "running", Lines: []string{"\x1b[2J"}}, nil
}

func (recorded) Result(_ context.Context, id string) (TaskResult, error) {
	switch id {
	case "T-GONE":
		return TaskResult{}, &WrongError{errors.New("unknown")}
	case "T-RUNS":
		return TaskResult{}, errors.New("it runs")
	}
	return TaskResult{ID: id, Status: "failed"}, nil
}

// The definitions are small: a model reads them with each of its calls.
func TestToolsets(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"run":                                 {Runner: echo{}},
		"task_create,task_result,task_status": {Tasks: recorded{}},
		"run,task_create,task_result,task_status": {Runner: echo{}, Tasks: recorded{}},
	} {
		list, err := connectTo(t, New(o), nil).ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		b, err := json.Marshal(list)
		if got := strings.Join(names, ","); err != nil || got != want || len(b) > 1900 {
			t.Errorf("%s of %d bytes, %v", got, len(b), err)
		}
	}
}

func TestTasks(t *testing.T) {
	t.Parallel()
	c := connectTo(t, New(Options{Tasks: recorded{}}), nil)
	for name, row := range map[string]struct {
		tool  string
		args  map[string]any
		text  string
		fails bool
		code  int64
	}{
		"create":            {tool: "task_create", args: map[string]any{"task": "x", "project": "p"}, text: `"id":"T-p"`},
		"nothing to do":     {tool: "task_create", args: map[string]any{"task": ""}, code: jsonrpc.CodeInvalidParams},
		"another argument":  {tool: "task_create", args: map[string]any{"task": "x", "command": "rm"}, code: jsonrpc.CodeInvalidParams},
		"of another type":   {tool: "task_create", args: map[string]any{"task": []string{"x"}}, code: jsonrpc.CodeInvalidParams},
		"status":            {tool: "task_status", args: map[string]any{"id": "T-A"}, text: `\u001b`},
		"unknown":           {tool: "task_status", args: map[string]any{"id": "T-GONE"}, code: jsonrpc.CodeInvalidParams},
		"result of unknown": {tool: "task_result", args: map[string]any{"id": "T-GONE"}, code: jsonrpc.CodeInvalidParams},
		"one that failed":   {tool: "task_result", args: map[string]any{"id": "T-A"}, text: `"status":"failed"`},
		"one that runs":     {tool: "task_result", args: map[string]any{"id": "T-RUNS"}, text: "it runs", fails: true},
		"run is not there":  {tool: "run", args: map[string]any{"env": "python", "code": ""}, code: jsonrpc.CodeInvalidParams},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: row.tool, Arguments: row.args})
			if row.code != 0 {
				if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != row.code {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if said, ok := got.Content[0].(*mcp.TextContent); !ok || !strings.Contains(said.Text, row.text) || got.IsError != row.fails {
				t.Errorf("%+v", got)
			}
		})
	}
}
