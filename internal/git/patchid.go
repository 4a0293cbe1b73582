package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// PatchIDs returns the stable patch ids of the commits that rev-list arguments name, except merges and empty commits.
func (r Repo) PatchIDs(ctx context.Context, revs ...string) (map[string]string, error) {
	// Only the diff: a message may have any lines.
	log := append([]string{
		"log", "-p", "--no-merges", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
		"--format=commit %H",
	}, revs...)
	from, done, err := r.spec(ctx, append(log, "--"))
	if err != nil {
		return nil, err
	}
	defer done()
	to, done, err := r.spec(ctx, []string{"patch-id", "--stable"})
	if err != nil {
		return nil, err
	}
	defer done()
	out, in := io.Pipe()
	ids, outIDs := io.Pipe()
	tail, toTail := proc.NewTail(4<<10), proc.NewTail(4<<10)
	from.Stdout, from.Stderr = in, tail
	to.Stdin, to.Stdout, to.Stderr = out, outIDs, toTail
	failed := make(chan error, 2)
	go func() {
		err := proc.Run(ctx, from)
		_ = in.CloseWithError(io.EOF)
		failed <- explained(verb(log), err, tail)
	}()
	go func() {
		err := proc.Run(ctx, to)
		_ = out.CloseWithError(io.ErrClosedPipe) // else who writes waits
		_ = outIDs.CloseWithError(io.EOF)
		failed <- explained("patch-id", err, toTail)
	}()
	list := map[string]string{}
	lines := bufio.NewScanner(ids)
	for lines.Scan() {
		if id, commit, ok := strings.Cut(lines.Text(), " "); ok && ValidSHA(commit) {
			list[commit] = id
		}
	}
	_, _ = io.Copy(io.Discard, ids) // after a line that is too long
	if err := errors.Join(<-failed, <-failed, lines.Err()); err != nil {
		return nil, fmt.Errorf("compare commits: %w", err)
	}
	return list, nil
}

func explained(verb string, err error, tail *proc.Tail) error {
	if err == nil {
		return nil
	}
	if ee, ok := errors.AsType[*proc.ExitError](err); ok {
		ee.Stderr = tail.String()
	}
	return explain(verb, err)
}
