package mcpserver

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// inside is a path in the environment, and what it is in the clone; "" outside of that.
func inside(name string) (abs, tracked string) {
	if abs = path.Clean(name); !path.IsAbs(abs) {
		abs = path.Join(sandbox.CloneDir, name)
	}
	rest, ok := strings.CutPrefix(abs, sandbox.CloneDir+"/")
	if !ok || rest == ".git" || strings.HasPrefix(rest, ".git/") {
		return abs, ""
	}
	return abs, rest
}

// Read is a file.
func (e *branchSandbox) Read(ctx context.Context, name string, most int64) ([]byte, error) {
	if err := e.wake(ctx); err != nil {
		return nil, err
	}
	abs, _ := inside(name)
	f, err := e.sb.Files().Open(ctx, abs)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes: read a part of it by a command", name, most)
	}
	return b, err
}

// List is a directory.
func (e *branchSandbox) List(ctx context.Context, name string) ([]SandboxFile, error) {
	if err := e.wake(ctx); err != nil {
		return nil, err
	}
	abs, _ := inside(name)
	list, err := e.sb.Files().List(ctx, abs)
	if err != nil {
		return nil, err
	}
	all := make([]SandboxFile, 0, len(list))
	for _, i := range list {
		f := SandboxFile{Name: i.Name, Type: "file", Size: i.Size}
		switch {
		case i.Mode.IsDir():
			f.Type, f.Size = "folder", 0
		case i.Mode&fs.ModeSymlink != 0:
			f.Type, f.Size = "link", 0
		case !i.Mode.IsRegular():
			f.Type, f.Size = "other", 0
		}
		all = append(all, f)
	}
	return all, nil
}

// Write writes a file.
func (e *branchSandbox) Write(ctx context.Context, name string, content []byte, subject string) (SandboxChange, error) {
	return e.change(ctx, name, subject, func(abs string) error {
		return e.sb.Files().Write(ctx, abs, strings.NewReader(string(content)), sandbox.WriteOptions{Parents: true})
	})
}

// Delete deletes a file.
func (e *branchSandbox) Delete(ctx context.Context, name string) (SandboxChange, error) {
	return e.change(ctx, name, "Delete "+name, func(abs string) error { return e.sb.Files().Remove(ctx, abs) })
}

func (e *branchSandbox) change(ctx context.Context, name, subject string, do func(abs string) error) (c SandboxChange, err error) {
	if err := e.wake(ctx); err != nil {
		return c, err
	}
	abs, tracked := inside(name)
	if tracked != "" {
		if sub := e.b.Submodule(ctx, tracked); sub != "" {
			return c, fmt.Errorf("%s is in the submodule %s, of which nothing would be committed: work in an environment of that repository",
				tracked, text.Clean(sub))
		}
	}
	if err := do(abs); err != nil {
		return c, err
	}
	if c.Commit, err = e.env.Sandboxes().TrySave(ctx, e.sb, sandbox.CommandRecord{Subject: subject}); err != nil {
		e.env.Warn(err.Error())
	}
	if why := uncommitted(abs, tracked, c.Commit, err != nil); why != "" {
		c.Notes = append(c.Notes, why)
	}
	c.Notes = e.notes(c.Notes...)
	return c, nil // the file is written; a note says that it was not saved
}

// uncommitted says why no commit has a changed file; a commit may be of what something else has changed.
func uncommitted(abs, tracked, commit string, failed bool) string {
	switch {
	case tracked == "":
		return "NOT TRACKED: " + abs + " is no file of the clone at " + sandbox.CloneDir + ", so no commit has it, " +
			"and it is lost when the environment is recreated"
	case failed:
		return "NOT COMMITTED: the file is changed, and the next change tries to commit it again"
	case commit == "":
		return "nothing is new in the branch: the file was so already, or git ignores it"
	}
	return ""
}
