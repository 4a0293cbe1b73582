package app

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// taskWord matches a task's ID or the beginning of one.
var taskWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// CheckTask returns a usage error for a word that is neither a task's ID nor a sandbox's name.
func CheckTask(id string) error {
	if taskWord.MatchString(strings.TrimSpace(id)) {
		return nil
	}
	return fault.New(workorder.ExitUsage, fmt.Errorf("%.80q is neither a task's ID nor a sandbox's name", id),
		"`sandbox-agent ps --all` lists them")
}

// FullTaskID completes what a user may leave out of a task's ID: the prefix, and capital letters.
func FullTaskID(id string) string {
	id = strings.ToUpper(strings.TrimSpace(id))
	if !strings.HasPrefix(id, "T-") {
		id = "T-" + id
	}
	return id
}
