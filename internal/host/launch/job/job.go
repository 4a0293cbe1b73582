// Package job holds everything that a run needs, and prints its plan as text.
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
	// Secrets reads the values of Order.SecretNames. It is called once, when all else is
	// ready for the box; nil if there are no secrets.
	Secrets func(context.Context) (map[string]string, error)
	Git     *workorder.GitCredential
	// ForgeToken opens the pull request. It is empty if App opens it, or if there is no token
	// or no pull request.
	ForgeToken string
	// App renews credentials that expire; nil if there is none.
	App *workorder.ForgeApp
	// LocalRepo is the top folder of a repository on this machine; empty for a remote one.
	LocalRepo string
	Owner     string
	OutDir    string // parent of the task's output folder; empty for the state folder
	Keep      bool
	Detach    bool
	// Attempt is the lowest number that this attempt may have; 0 if no former attempt is known.
	Attempt int
	// Request is saved for later attempts at the task.
	Request store.Request
	// Bundle and Archive are files of earlier attempts that the box gets.
	Bundle, Archive string
	// Notes are decisions that were made while the job was resolved, and are nothing odd.
	Notes []string
	// Warnings are oddities found while the job was resolved.
	Warnings []string
}

// BoxName is the name of an attempt's container. It has the attempt's number because the
// stopped box of a former attempt may have been kept.
func BoxName(taskID string, attempt int) string {
	if attempt <= 1 {
		return "sandbox-agent-" + taskID
	}
	return fmt.Sprintf("sandbox-agent-%s-%d", taskID, attempt)
}

// Check looks for mistakes in the order that the box will get.
func (j *Job) Check() error {
	checked := j.Order
	if j.LocalRepo != "" {
		checked.CloneURL = j.LocalRepo // the real URL is known when the repository is served
	}
	return fault.New(workorder.ExitInvalid, checked.Check(), "")
}

// MemoryTenths is a box's share of the machine's memory, unless the project sets another: a program in a box
// that takes too much is killed there, before the machine's own programs are.
const MemoryTenths = 9
