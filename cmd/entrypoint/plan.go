package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/untrusted"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// planDesk is a folder of the agent's in a folder of root's, which nobody else can put something else in the place of.
const planDesk = "/run/sandbox-agent-plan"

// makeDesk prepares the place of the plan and tells the agent of it.
func (t *task) makeDesk() error {
	if err := os.MkdirAll(planDesk, 0o700); err != nil {
		return fmt.Errorf("make a place for the plan: %w", err)
	}
	if u := t.cfg.User; u != nil {
		if err := os.Chown(planDesk, int(u.UID), int(u.GID)); err != nil {
			return fmt.Errorf("make a place for the plan: %w", err)
		}
	}
	file := filepath.Join(planDesk, workorder.PlanFile)
	t.Setenv("SANDBOX_AGENT_PLAN_FILE", file)
	t.cfg.Prompt = runner.Planning(t.cfg.Order.Task, file)
	return nil
}

// Plan is what the agent wrote, else its last words.
func (t *task) Plan() (text, path string, err error) {
	text, err = readPlan(planDesk, t.cfg.User.Owner())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", "", err
	}
	text = strings.TrimSpace(text)
	if text == "" {
		text = strings.TrimSpace(t.agent.Agent.Final)
	}
	if text == "" {
		return "", "", errors.New("the agent made no plan: it wrote neither a plan to $SANDBOX_AGENT_PLAN_FILE nor a last word")
	}
	// It is opened in an editor and becomes a prompt: nothing in it is hidden.
	if text = forge.StripPlain(text); strings.TrimSpace(text) == "" {
		return "", "", errors.New("the agent made no plan: there is nothing in it that can be read")
	}
	text = strings.TrimSpace(t.cfg.Redact.String(text)) + "\n"
	if err := os.WriteFile(filepath.Join(t.cfg.OutDir, workorder.PlanFile), []byte(text), 0o644); err != nil {
		return "", "", fmt.Errorf("keep the plan: %w", err)
	}
	return text, workorder.PlanFile, nil
}

// readPlan reads what the agent's user may have made anything of: a link, a pipe, gigabytes.
func readPlan(dir string, owner *uint32) (string, error) {
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
