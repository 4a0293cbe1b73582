// Package job is everything that a run needs, and its plan as text.
package job

import (
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Job is everything a run needs.
type Job struct {
	Order workorder.Order
	// Title is the task as lists show it; empty means its text.
	Title string
	// Secrets reads the values of Order.SecretNames. It is called once, when all is ready
	// for the box; nil means there are none.
	Secrets func(context.Context) (map[string]string, error)
	Git     *workorder.GitCredential
	// ForgeToken opens the pull request; empty: App does, there is none, or none is asked for.
	ForgeToken string
	// App renews what expires; nil means there is none.
	App *workorder.GitHubApp
	// LocalRepo is the top of a repository on this machine; empty for a remote one.
	LocalRepo string
	Owner     string
	OutDir    string // parent of the task's output folder; empty means the state folder
	Keep      bool
	Detach    bool
	// Attempt is the number of the attempt at least; 0 means nothing is known of former ones.
	Attempt int
	// Request is remembered for those who go on with the task.
	Request store.Request
	// bundle and archive are files of earlier attempts, for the box.
	Bundle, Archive string
	// Warnings are what was found odd while the job was resolved.
	Warnings []string
}

// BoxName is the name of the container of an attempt: the stopped one of a former
// attempt may have been kept.
func BoxName(taskID string, attempt int) string {
	if attempt <= 1 {
		return "sandbox-agent-" + taskID
	}
	return fmt.Sprintf("sandbox-agent-%s-%d", taskID, attempt)
}

// Check looks for mistakes in what the box will be told.
func (j *Job) Check() error {
	checked := j.Order
	if j.LocalRepo != "" {
		checked.CloneURL = j.LocalRepo // the real one is known when it is served
	}
	return fault.New(workorder.ExitInvalid, checked.Check(), "")
}

// MemoryTenths of the machine's memory are a box's, unless the project says something else: what runs away in
// a box is ended there, before the machine's own programs are.
const MemoryTenths = 9
