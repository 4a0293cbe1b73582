package taskrunner

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// planDir is the agent-writable output directory. Its parent is root's, so that the agent cannot replace it.
const planDir = "/run/sandbox-agent-plan"

// planVar is the variable with the plan's path for the agent.
const planVar = "SANDBOX_AGENT_PLAN_FILE"

// makePlanDir creates the plan's directory for user, nil for the current user, and returns the path of the plan.
func makePlanDir(user *proc.Credential) (file string, err error) {
	if err := os.MkdirAll(planDir, 0o700); err != nil {
		return "", fmt.Errorf("create a directory for the plan: %w", err)
	}
	if user != nil {
		if err := os.Chown(planDir, int(user.UID), int(user.GID)); err != nil {
			return "", fmt.Errorf("create a directory for the plan: %w", err)
		}
	}
	return filepath.Join(planDir, workorder.PlanFile), nil
}

// collectPlan returns the agent's text in desk, or else its final message, cleaned by shown, and stores it at path in out.
func collectPlan(desk string, owner *uint32, lastWords, out string, shown func(string) string) (text, path string, err error) {
	text, err = readPlan(desk, owner)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", "", err
	}
	text = cmp.Or(strings.TrimSpace(text), strings.TrimSpace(lastWords))
	if text == "" {
		return "", "", errors.New("the agent made no plan: it wrote neither a plan to $" + planVar + " nor a final message")
	}
	// It is opened in an editor and becomes a prompt, so nothing in it may be hidden.
	if text = forge.StripPlain(text); strings.TrimSpace(text) == "" {
		return "", "", errors.New("the agent made no plan: it has no readable text")
	}
	text = strings.TrimSpace(shown(text)) + "\n"
	if err := os.WriteFile(filepath.Join(out, workorder.PlanFile), []byte(text), 0o644); err != nil {
		return "", "", fmt.Errorf("store the plan: %w", err)
	}
	return text, workorder.PlanFile, nil
}

// readPlan reads a file that the agent's user may have replaced by anything: a link, a pipe, gigabytes.
func readPlan(dir string, owner *uint32) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("read the plan: %w", err)
	}
	defer root.Close()
	b, err := safeopen.Read(root, workorder.PlanFile, owner, workorder.MaxPlan)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the plan: %w", err)
	case !utf8.Valid(b):
		return "", errors.New("read the plan: not UTF-8 text")
	}
	return strings.ReplaceAll(string(b), "\x00", ""), nil
}
