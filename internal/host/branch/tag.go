package branch

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"
)

//go:embed replace.sh
var replaceScript string

func tagRef(b *Branch, name string) string { return "refs/tags/" + b.Sandbox + "/" + name }

// Mark makes the tag SANDBOX/NAME that of the last save, and replaces one of that name. Unlike Tag it makes no commit.
func (b *Branch) Mark(ctx context.Context, name string) (commit string, err error) {
	if commit = b.Head(ctx); commit == "" {
		return "", fmt.Errorf("sandbox %s: %w", b.Sandbox, ErrNotFound)
	}
	return commit, b.git().Run(ctx, "update-ref", tagRef(b, name), commit)
}

// Untag removes the tag SANDBOX/NAME, if there is one.
func (b *Branch) Untag(ctx context.Context, name string) error {
	if b.resolve(ctx, tagRef(b, name)) == "" {
		return nil
	}
	return b.git().Run(ctx, "update-ref", "-d", tagRef(b, name))
}

// ReplaceFiles replaces the files of the clone by those of a commit of the repository of branches. Ignored files and the commits of the
// clone stay: the next Save commits the difference. The caller has saved what is in the clone.
func (b *Clone) ReplaceFiles(ctx context.Context, commit string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, saveTime, fmt.Errorf("the sandbox's files were not replaced within %s", saveTime))
	defer cancel()
	err := errors.New("its commit is missing")
	if b.resolve(ctx, commit) != "" {
		err = b.send(ctx, commit, b.Base(ctx), []string{"sh", "-c", replaceScript, "sh", b.cloneDir, commit})
	}
	if err != nil {
		return fmt.Errorf("replace the files of sandbox %s in %s: %w", b.Sandbox, b.cloneDir, err)
	}
	return nil
}

// Copy begins the branch as a copy of that of another sandbox of the repository. A new clone gets its files by Restore.
func (b *Branch) Copy(ctx context.Context, other *Branch) error {
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	what := fmt.Sprintf("copy the branch of sandbox %s to %s", other.Sandbox, b.Sandbox)
	if b.Head(ctx) != "" {
		return fmt.Errorf("%s: there is a branch of a former sandbox: `sandbox-agent delete %s` deletes it", what, b.Sandbox)
	}
	head, base := other.Head(ctx), other.Base(ctx)
	if head == "" || base == "" {
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	clone, _ := other.line(ctx, "config", other.key("clone")) // set with the first save
	for key, value := range map[string]string{
		"title": other.Title(ctx), "created": time.Now().UTC().Format(time.RFC3339), "clone": clone,
		"cloned": other.ClonedAt(ctx), "base-" + strings.ToLower(clone): base,
	} {
		if err := b.git().Run(ctx, "config", b.key(key), value); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	g := b.git()
	g.Stdin = "create " + heads + b.Sandbox + " " + head + "\nupdate " + bases + b.Sandbox + " " + base + "\n"
	if err := g.Run(ctx, "update-ref", "--stdin"); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
