package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/gitguard"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
)

// settings are the worktree's own and override all others. The sandbox writes every file in the worktree: no hook may run
// there, and git may not enter submodules.
const settings = "[core]\n\thooksPath = /dev/null\n\tfsmonitor = false\n" +
	"[submodule]\n\trecurse = false\n[fetch]\n\trecurseSubmodules = false\n[push]\n\trecurseSubmodules = no\n[status]\n\tsubmoduleSummary " +
	"= false\n[diff]\n\tignoreSubmodules = all\n"

// configure writes settings to the worktree's own file and enables such files in the repository.
func (w *Worktree) configure(ctx context.Context) error {
	if err := w.alone(ctx, func() error { return w.allow(ctx) }); err != nil {
		return fmt.Errorf("enable settings per worktree: %w", err)
	}
	file, err := path(ctx, localrepo.Git(w.Tree()), "config.worktree")
	if err != nil {
		return err
	}
	had, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if strings.HasSuffix(string(had), settings) {
		return nil
	}
	return os.WriteFile(file, append(had, "\n"+settings...), 0o644)
}

// alone excludes other commands that change worktrees, because git fails on another command's unfinished changes.
func (w *Worktree) alone(ctx context.Context, f func() error) error {
	lock, err := lockfile.Take(ctx, filepath.Dir(w.dir)+".lock")
	if err != nil {
		return err
	}
	defer lock.Release()
	return f()
}

// allow sets extensions.worktreeConfig as git itself does: it first moves the main working tree's own settings to that tree's file.
func (w *Worktree) allow(ctx context.Context) error {
	user := localrepo.Git(w.Repo)
	if out, err := user.Output(ctx, "config", "--bool", "extensions.worktreeConfig"); err == nil && string(out) == "true\n" {
		return nil
	}
	out, err := user.Output(ctx, "rev-parse", "--git-common-dir")
	if err != nil {
		return err
	}
	common := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(common) {
		common = filepath.Join(w.Repo, common)
	}
	shared, main := filepath.Join(common, "config"), filepath.Join(common, "config.worktree")
	var moved []string
	for _, key := range []string{"core.bare", "core.worktree"} {
		out, err := user.Output(ctx, "config", "--file", shared, key)
		value := strings.TrimSuffix(string(out), "\n")
		if err != nil || key == "core.bare" && value != "true" {
			continue // not set, or the same in every working tree
		}
		if err := user.Run(ctx, "config", "--file", main, key, value); err != nil {
			return err
		}
		moved = append(moved, key)
	}
	if err := user.Run(ctx, "config", "--file", shared, "extensions.worktreeConfig", "true"); err != nil {
		return err
	}
	for _, key := range moved {
		if err := user.Run(ctx, "config", "--file", shared, "--unset", key); err != nil {
			return err
		}
	}
	return nil
}

// Guard configures the worktree and returns an error if git in it would still run a program that the sandbox can write.
func (w *Worktree) Guard(ctx context.Context) error {
	if _, err := os.Stat(w.Tree()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := w.configure(ctx); err != nil {
		return err
	}
	found, err := gitguard.Programs(ctx, w.Tree())
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("git's settings name %s", found[0])
	}
	if err != nil {
		return fmt.Errorf("git in %s would run files that the sandbox can write: %w: remove the setting, or take a clone, with --repo",
			w.Tree(), err)
	}
	return nil
}
