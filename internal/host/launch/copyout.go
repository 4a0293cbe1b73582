package launch

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/archive"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	boxLogTail = 8 << 20 // bytes of the end of the guest's own log
	boxLog     = "box.log"
)

type output struct {
	result   []byte // nil if the box left none
	warnings []string
}

// copyOut copies the box's output into the task's directory. After an error the box still has the only copy of some of it.
//
// said is the result of the run's last event, or nil.
func (c collector) copyOut(ctx context.Context, id, dir string, said *workorder.Result) (output, error) {
	in, err := newIntake(dir)
	if err != nil {
		return output{}, err
	}
	err = c.empty(ctx, id, in, said)
	in.Close()
	out := output{in.result, in.warnings}
	if err != nil {
		return out, err
	}
	return out, c.saveBoxLog(ctx, id, dir, &out)
}

func (c collector) empty(ctx context.Context, id string, in *intake, said *workorder.Result) error {
	// The most important files come first: a full disk then costs logs, not commits. Each costs a request.
	first := []string{workorder.ResultFile, workorder.BundleFile, workorder.ArchiveFile}
	if said != nil {
		first = slices.DeleteFunc(first, func(name string) bool {
			return !slices.ContainsFunc(said.Evidence, func(e workorder.Evidence) bool { return e.Path == name })
		})
	}
	for _, name := range first {
		err := c.read(ctx, id, path.Join(workorder.OutDir, name), func(r io.Reader) error { return in.file(r, name) })
		if err != nil {
			return err
		}
	}
	return c.read(ctx, id, workorder.OutDir, in.outDir)
}

// read passes a tar of a path in the box to fn. A missing path is not an error.
func (c collector) read(ctx context.Context, id, name string, fn func(io.Reader) error) error {
	r, err := runtime.CopierOf(c.Engine).CopyOut(ctx, id, name)
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return fn(r)
}

func (c collector) saveBoxLog(ctx context.Context, id, dir string, out *output) error {
	var tail tail
	if err := c.Engine.Logs(ctx, id, runtime.LogOptions{Stderr: &tail}); errors.Is(err, runtime.ErrUnavailable) {
		return err
	} else if err != nil {
		// An engine that cannot read a log now will not be able to later.
		out.warnings = append(out.warnings, err.Error())
	}
	if tail.Len() == 0 {
		return nil
	}
	logs := filepath.Join(dir, workorder.LogsDir)
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return fmt.Errorf("keep the sandbox's log: %w", err)
	}
	var kept bytes.Buffer
	if err := text.Copy(&kept, &tail); err != nil {
		return fmt.Errorf("keep the sandbox's log: %w", err)
	}
	return statedir.WriteFile(filepath.Join(logs, boxLog), kept.Bytes(), 0o600)
}

// tail keeps the end of its input. It moves the content rarely, since a box's log is far longer.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n, err := t.Buffer.Write(p)
	if over := t.Len() - 2*boxLogTail; over > 0 {
		t.Next(t.Len() - boxLogTail)
	}
	return n, err
}

// keptBox returns the error for output that could not be copied, with a hint to try again.
func keptBox(rec *taskstore.Record, err error) error {
	code := workorder.ExitGeneral
	if errors.Is(err, runtime.ErrUnavailable) {
		code = workorder.ExitBox
	}
	return exiterr.New(code, fmt.Errorf("copy the output of task %s out of its sandbox: %w", rec.TaskID, err),
		"the sandbox is kept: fix the cause, then collect the output with: sandbox-agent result "+rec.TaskID)
}

const (
	// maxUnpack and maxEntries bound the copied bytes and entries: the agent contributes to the evidence and must not be
	// able to fill the host's disk.
	maxUnpack  = 4 << 30
	maxEntries = 100_000
	maxResult  = 64 << 20 // bytes of result.json
)

// reserved are names in a task's directory that belong to the host.
var reserved = map[string]bool{
	workorder.OrderFile: true, "task.json": true, "lock": true, "companion.log": true, "tmp": true,
	outcome.HostEventsFile: true, "stop": true, taskstore.AttemptsDir: true,
}

// intake writes a box's output into the task's directory. The archives come from an untrusted box: intake accepts only regular
// files and directories below its root. Entries that are invalid because of the box are skipped with a warning, since they
// would fail again; failures of the host are errors.
type intake struct {
	root     *os.Root
	left     int64
	entries  int
	taken    map[string]bool // files that were read already
	result   []byte          // the content of the result file, which is not written
	skipped  int
	first    error // why the first entry was skipped
	warnings []string
}

func newIntake(dir string) (*intake, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the task's directory: %w", err)
	}
	return &intake{root: root, left: maxUnpack, entries: maxEntries, taken: map[string]bool{}}, nil
}

func (in *intake) Close() {
	if in.skipped > 0 {
		in.warnings = append(in.warnings, fmt.Sprintf("%d files of the sandbox's output were skipped, the first: %v", in.skipped,
			in.first))
		in.skipped = 0
	}
	in.root.Close()
}

// errBounds ends an intake at maxUnpack or maxEntries.
var errBounds = errors.New("limit reached")

// outDir reads a tar of the box's output directory, with the directory's own name as a prefix.
func (in *intake) outDir(r io.Reader) error {
	err := in.each(r, func(h *tar.Header, tr io.Reader) error {
		_, name, _ := strings.Cut(strings.TrimSuffix(h.Name, "/"), "/")
		return in.entry(h, name, tr)
	})
	if errors.Is(err, errBounds) {
		return nil
	}
	return err
}

func (in *intake) file(r io.Reader, name string) error {
	err := in.each(r, func(h *tar.Header, tr io.Reader) error {
		if h.Typeflag != tar.TypeReg || h.Name != path.Base(name) {
			return nil
		}
		err := in.entry(h, name, tr)
		in.taken[name] = err == nil
		return err
	})
	if errors.Is(err, errBounds) {
		return nil
	}
	return err
}

func (in *intake) each(r io.Reader, fn func(*tar.Header, io.Reader) error) error {
	return archive.Each(r, func(h *tar.Header, content io.Reader) error {
		if in.entries--; in.entries < 0 {
			in.warnings = append(in.warnings, fmt.Sprintf("output of the sandbox has more than %d files: %q and the following ones are not copied",
				maxEntries, h.Name))
			return errBounds
		}
		return fn(h, content)
	})
}

func (in *intake) entry(h *tar.Header, name string, r io.Reader) error {
	top, _, _ := strings.Cut(name, "/")
	if !fs.ValidPath(strings.TrimSuffix(h.Name, "/")) || name == "" || reserved[top] || strings.HasPrefix(top, ".") || in.taken[name] {
		return nil
	}
	switch {
	case h.Typeflag == tar.TypeDir:
		return in.blame(in.root.MkdirAll(name, 0o700))
	case h.Typeflag != tar.TypeReg:
		return nil
	case name == workorder.ResultFile:
		b, err := io.ReadAll(io.LimitReader(r, maxResult))
		if err == nil {
			in.result = b
		}
		return err
	case h.Size > in.left:
		in.warnings = append(in.warnings, fmt.Sprintf("output of the sandbox is larger than %d bytes: %q and the following files are not copied",
			int64(maxUnpack), name))
		return errBounds
	}
	in.left -= h.Size
	if name == workorder.EventsFile {
		return outcome.MergeEvents(in.root, r)
	}
	return in.blame(in.write(name, r))
}

// blame counts errors caused by the box, such as a too long name, and returns errors of the host.
func (in *intake) blame(err error) error {
	for _, theirs := range []unix.Errno{unix.ENOTDIR, unix.EISDIR, unix.EEXIST, unix.ENAMETOOLONG, unix.EINVAL, unix.EILSEQ} {
		if errors.Is(err, theirs) {
			if in.skipped++; in.skipped == 1 {
				in.first = err
			}
			return nil
		}
	}
	return err
}

func (in *intake) write(name string, r io.Reader) error {
	if err := in.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := in.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if readByPeople(name) {
		err = text.Copy(f, r)
	} else {
		_, err = io.Copy(f, r)
	}
	return errors.Join(err, f.Close())
}

// readByPeople reports whether a file is text that a user may print to a terminal: logs, with output of agent, tests and
// services, and notes about pictures and archives.
func readByPeople(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	if top == workorder.LogsDir || name == workorder.PlanFile {
		return true
	}
	switch path.Ext(name) {
	case ".txt", ".log", ".md", ".json", ".jsonl":
		return true
	}
	return false
}
