package mcpserver

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Tasks hands tasks to agents in boxes. An error of what an agent has asked for is a WrongError.
type Tasks interface {
	// Create starts a task, which goes on without this program.
	Create(ctx context.Context, q TaskRequest) (TaskStarted, error)
	Status(ctx context.Context, id string) (TaskStatus, error)
	Result(ctx context.Context, id string) (TaskResult, error)
}

// WrongError says what is wrong with a call.
type WrongError struct{ Err error }

func (e *WrongError) Error() string { return e.Err.Error() }

func (e *WrongError) Unwrap() error { return e.Err }

// TaskRequest is what an agent asks for.
type TaskRequest struct {
	Task    string `json:"task"`
	Project string `json:"project,omitempty"` // a name
	Repo    string `json:"repo,omitempty"`    // a URL
	Branch  string `json:"branch,omitempty"`  // that it starts from
	Harness string `json:"harness,omitempty"`
}

// TaskStarted is the answer to it.
type TaskStarted struct {
	ID     string `json:"id"`
	Follow string `json:"follow"` // the command that shows it to the user
	Notes  string `json:"notes,omitempty"`
}

// TaskStatus is where a task is.
type TaskStatus struct {
	ID    string `json:"id"`
	State string `json:"state"` // starting, running, collecting, unknown, or a result's status
	Step  string `json:"step,omitempty"`
	// Ended reports that there is a result.
	Ended bool     `json:"ended"`
	Lines []string `json:"lines"` // the last of its log
}

// TaskResult is the outcome of a task.
type TaskResult struct {
	ID          string      `json:"id"`
	Status      string      `json:"status"`
	Reason      string      `json:"reason,omitempty"`
	Branch      string      `json:"branch,omitempty"`
	Head        string      `json:"head,omitempty"`
	Pushed      bool        `json:"pushed"`
	PullRequest string      `json:"pull_request,omitempty"`
	Summary     string      `json:"summary,omitempty"` // the agent's last words
	Commits     []string    `json:"commits"`
	Checks      []TaskCheck `json:"checks"`
	Flags       []string    `json:"flags,omitempty"` // what a reviewer should see first
	Evidence    []string    `json:"evidence"`        // files in the directory
	Dir         string      `json:"folder"`
	CostUSD     *float64    `json:"cost_usd,omitempty"`
	Next        string      `json:"next,omitempty"` // what the user would run next
}

// TaskCheck is a check of the project after the agent.
type TaskCheck struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	// Transition is what the proof found, by running it on base and head.
	Transition string `json:"transition,omitempty"`
}

// taskID are the arguments of a tool on a task.
type taskID struct {
	ID string `json:"id"`
}

func (s *Server) addTasks() {
	looks := &mcp.ToolAnnotations{ReadOnlyHint: true}
	add(s, &mcp.Tool{
		Name: "task_create",
		Description: "Hand a task to a coding agent in a " +
			"sandbox with a clone of its own: it pushes a branch, and may open a pull request. Returns an id; " +
			"the task takes minutes. Name a project of the user's, or the URL of a repository; without either it is the current one.",
	}, func(ctx context.Context, _ string, q *TaskRequest) (*mcp.CallToolResult, error) {
		return document(s.o.Tasks.Create(ctx, *q))
	})
	add(s, &mcp.Tool{Name: "task_status", Description: "Where a task is: state, step, last lines of its log.", Annotations: looks},
		byID(s.o.Tasks.Status))
	add(s, &mcp.Tool{
		Name: "task_result", Description: "Outcome of a task that has ended: status, branch, pull request, summary, checks, evidence.",
		Annotations: looks,
	}, byID(s.o.Tasks.Result))
}

// byID is a tool that looks at a task.
func byID[T any](look func(context.Context, string) (T, error)) func(context.Context, string, *taskID) (*mcp.CallToolResult, error) {
	return func(ctx context.Context, _ string, a *taskID) (*mcp.CallToolResult, error) {
		return document(look(ctx, a.ID))
	}
}

// document is a result that is a document of JSON.
func document(v any, err error) (*mcp.CallToolResult, error) {
	if err != nil {
		return answer(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text.EscapeControls(b))}}}, nil
}
