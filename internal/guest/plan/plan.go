// Package plan gives the agent a place to write its plan in, and takes out of it what a person may read.
package plan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/untrusted"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Desk is the agent-writable output folder. Its parent is root's, so that the agent cannot replace it.
const Desk = "/run/sandbox-agent-plan"

// Var is the variable with the plan's path for the agent.
const Var = "SANDBOX_AGENT_PLAN_FILE"

// MakeDesk makes the place of the plan for user, nil for the caller's, and returns the file that it goes to.
func MakeDesk(user *proc.Credential) (file string, err error) {
	if err := os.MkdirAll(Desk, 0o700); err != nil {
		return "", fmt.Errorf("make a place for the plan: %w", err)
	}
	if user != nil {
		if err := os.Chown(Desk, int(user.UID), int(user.GID)); err != nil {
			return "", fmt.Errorf("make a place for the plan: %w", err)
		}
	}
	return filepath.Join(Desk, workorder.PlanFile), nil
}

// Take is what the agent wrote to desk, else its last words, without what hides and what shown removes. It is kept in out,
// the result's folder, at path.
func Take(desk string, owner *uint32, lastWords, out string, shown func(string) string) (text, path string, err error) {
	text, err = read(desk, owner)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", "", err
	}
	text = strings.TrimSpace(text)
	if text == "" {
		text = strings.TrimSpace(lastWords)
	}
	if text == "" {
		return "", "", errors.New("the agent made no plan: it wrote neither a plan to $" + Var + " nor a last word")
	}
	// It is opened in an editor and becomes a prompt: nothing in it is hidden.
	if text = forge.StripPlain(text); strings.TrimSpace(text) == "" {
		return "", "", errors.New("the agent made no plan: there is nothing in it that can be read")
	}
	text = strings.TrimSpace(shown(text)) + "\n"
	if err := os.WriteFile(filepath.Join(out, workorder.PlanFile), []byte(text), 0o644); err != nil {
		return "", "", fmt.Errorf("keep the plan: %w", err)
	}
	return text, workorder.PlanFile, nil
}

// read reads what the agent's user may have made anything of: a link, a pipe, gigabytes.
func read(dir string, owner *uint32) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("read the plan: %w", err)
	}
	defer root.Close()
	b, err := untrusted.Read(root, workorder.PlanFile, owner, workorder.MaxPlan)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the plan: %w", err)
	case !utf8.Valid(b):
		return "", errors.New("read the plan: it is not UTF-8 text")
	}
	return strings.ReplaceAll(string(b), "\x00", ""), nil
}
