package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// What setup leaves in the work tree (a lock file that `npm install` wrote) is
// not the agent's work. Baseline notes it, and Commit leaves it out for as long as the agent has
// not changed it. It is a file, so that rescue knows it too.

func (p *Publisher) baselineFile() string { return filepath.Join(p.Dir, "baseline") }

// Baseline notes how the work tree differs from HEAD now.
func (p *Publisher) Baseline(ctx context.Context) error {
	t := p.tree()
	dirty, err := t.Dirty(ctx)
	if err != nil || !dirty {
		return err
	}
	// An index of its own: the agent's is not touched. It lies in .git, where the
	// agent's user may write and nothing is ever committed.
	t.Env = append(t.Env, "GIT_INDEX_FILE="+filepath.Join(p.Workspace, ".git/sandbox-agent-index"))
	if err := t.Run(ctx, "read-tree", "HEAD"); err != nil {
		return err
	}
	addErr := t.Run(ctx, "add", "--all", "--ignore-errors")
	out, err := t.Output(ctx, "diff-index", "--cached", "--no-renames", "-z", "HEAD")
	_ = proc.Run(ctx, proc.Spec{Argv: []string{"rm", "-f", ".git/sandbox-agent-index"}, Dir: p.Workspace, User: p.User})
	if err != nil {
		return errors.Join(addErr, err)
	}
	if err := os.WriteFile(p.baselineFile(), out, 0o600); err != nil {
		return fmt.Errorf("note what setup left: %w", err)
	}
	return nil
}

// entry is one record of git diff-index -z: what it says of the path.
func entries(raw string) map[string]string {
	m := map[string]string{}
	fields := strings.Split(raw, "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		m[fields[i+1]] = fields[i]
	}
	return m
}

// baseline lists the paths of the index that are as setup left them.
func (p *Publisher) baseline(ctx context.Context) ([]string, error) {
	noted, err := os.ReadFile(p.baselineFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what setup left: %w", err)
	}
	out, err := p.tree().Output(ctx, "diff-index", "--cached", "--no-renames", "-z", "HEAD")
	if err != nil {
		return nil, err
	}
	was := entries(string(noted))
	var same []string
	for path, now := range entries(string(out)) {
		if was[path] == now {
			same = append(same, path)
		}
	}
	return same, nil
}

// unstage takes paths out of the index again; the files stay.
func (p *Publisher) unstage(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	t := p.tree()
	t.Stdin = strings.Join(paths, "\x00")
	return t.Run(ctx, "reset", "--quiet", "--pathspec-from-file=-", "--pathspec-file-nul")
}
