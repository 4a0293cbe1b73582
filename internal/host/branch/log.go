package branch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// Entry is a commit with its commands: those before it, and those after it that changed nothing.
type Entry struct {
	Commit  string          `json:"commit"`
	Time    time.Time       `json:"time"`
	Subject string          `json:"subject"`
	Ran     []CommandRecord `json:"ran"`
}

// Log returns the branch's own commits, newest first.
func (b *Branch) Log(ctx context.Context) ([]Entry, error) {
	all, err := Log(ctx, b.git(), heads+b.Sandbox, "^"+bases+b.Sandbox)
	if err != nil {
		return nil, fmt.Errorf("read the branch of sandbox %s: %w", b.Sandbox, err)
	}
	return all, nil
}

// Log returns commits of a repository with the commands noted at them, newest first. Revisions are those of git log.
func Log(ctx context.Context, repo git.Repo, revisions ...string) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	all := []Entry{}
	var bad error
	args := []string{
		"log", "-z", "--no-show-signature", "--format=%H%x1f%ct%x1f%s%x1f%N", "--notes=refs/notes/" + notes, "--end-of-options",
	}
	err := repo.Each(ctx, func(record string) {
		f := strings.SplitN(strings.TrimPrefix(record, "\n"), "\x1f", 4)
		const fields = 4
		var at int64
		if len(f) < fields {
			return
		}
		if _, err := fmt.Sscan(f[1], &at); err != nil {
			bad = err
			return
		}
		e := Entry{Commit: f[0], Time: time.Unix(at, 0), Subject: f[2], Ran: []CommandRecord{}}
		for line := range strings.Lines(f[3]) {
			var ran CommandRecord
			if json.Unmarshal([]byte(line), &ran) == nil { // skips notes of other programs
				e.Ran = append(e.Ran, ran)
			}
		}
		all = append(all, e)
	}, append(append(args, revisions...), "--")...)
	return all, errors.Join(err, bad)
}

// Patch writes the branch's own commits with their changes, newest first.
func (b *Branch) Patch(ctx context.Context, out io.Writer) error {
	if err := Patch(ctx, b.git(), out, heads+b.Sandbox, "^"+bases+b.Sandbox); err != nil {
		return fmt.Errorf("read the branch of sandbox %s: %w", b.Sandbox, err)
	}
	return nil
}

// Patch writes commits of a repository with their changes, newest first. Revisions are those of git log.
func Patch(ctx context.Context, repo git.Repo, out io.Writer, revisions ...string) error {
	const grace = time.Second
	args := []string{
		"log", "-p", "--no-color", "--no-show-signature", "--no-ext-diff", "--no-textconv", "--notes=refs/notes/" + notes, "--end-of-options",
	}
	said, err := repo.Stream(ctx, nil, out, grace, append(append(args, revisions...), "--")...)
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(said))
	}
	return nil
}
