package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// unarchiveTime bounds unpacking, which is bounded by archiveLimit, too.
const unarchiveTime = 2 * time.Minute

// Unarchive lays an archive that Archive made over the work tree, as the agent's
// user and without any .git: what git could not take then may be in its way again. It is called after
// Checkout. One that cannot be read is said and keeps nobody from going on: the host still has it.
func (p *Publisher) Unarchive(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, unarchiveTime)
	defer cancel()
	said := "files that an earlier attempt could not commit are in the work tree again"
	if err := p.unpack(ctx, path); err != nil {
		said = fmt.Sprintf("the files that an earlier attempt could not commit are not, or not all, in the work tree again: %v", err)
	}
	p.Emit(workorder.Event{Type: workorder.EventWarning, Text: said})
}

func (p *Publisher) unpack(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	tail := proc.NewTail(1 << 10)
	err = proc.Run(ctx, proc.Spec{
		Argv: []string{"tar", "--extract", "--gzip", "--no-same-owner", "--exclude=.git", "--warning=no-timestamp"},
		Dir:  p.Workspace, User: p.User, Stdin: f, Stderr: tail,
		Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"},
	})
	if err != nil {
		return errors.Join(err, errors.New(strings.TrimSpace(tail.String())))
	}
	return nil
}
