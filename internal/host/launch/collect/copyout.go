package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// boxLogTail bounds the kept end of the guest's own log, in bytes.
	boxLogTail = 8 << 20
	boxLog     = "box.log"
)

// output is what was copied out of a box.
type output struct {
	result   []byte // nil if the box left none
	warnings []string
}

// copyOut copies the box's output into the task's folder. After an error the box still
// holds the only copy of something.
func (c *Collector) copyOut(ctx context.Context, id, dir string) (output, error) {
	in, err := newIntake(dir)
	if err != nil {
		return output{}, err
	}
	err = c.empty(ctx, id, in)
	in.Close()
	out := output{in.result, in.warnings}
	if err != nil {
		return out, err
	}
	return out, c.saveBoxLog(ctx, id, dir, &out)
}

// empty copies everything that the box left.
func (c *Collector) empty(ctx context.Context, id string, in *intake) error {
	// The most important files come first: a full disk then costs logs, not the work.
	for _, name := range []string{workorder.ResultFile, workorder.BundleFile, workorder.ArchiveFile} {
		err := c.read(ctx, id, path.Join(workorder.OutDir, name), func(r io.Reader) error { return in.file(r, name) })
		if err != nil {
			return err
		}
	}
	return c.read(ctx, id, workorder.OutDir, in.folder)
}

// read hands a tar of a path in the box to fn. A missing path is not an error.
func (c *Collector) read(ctx context.Context, id, name string, fn func(io.Reader) error) error {
	r, err := runtime.CopierOf(c.Host.Engine).CopyOut(ctx, id, name)
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return fn(r)
}

// saveBoxLog keeps the guest's own log beside the run's logs.
func (c *Collector) saveBoxLog(ctx context.Context, id, dir string, out *output) error {
	var tail tail
	if err := c.Host.Engine.Logs(ctx, id, runtime.LogOptions{Stderr: &tail}); errors.Is(err, runtime.ErrUnavailable) {
		return err
	} else if err != nil {
		// An engine that cannot read a log now will not read it later.
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

// tail keeps the end of what is written to it and rarely moves it: the log of a box is
// far longer than the part that is kept.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n, err := t.Buffer.Write(p)
	if over := t.Len() - 2*boxLogTail; over > 0 {
		t.Next(t.Len() - boxLogTail)
	}
	return n, err
}

// keptBox is the error for an output that could not be copied; it says how to try again.
func keptBox(rec *store.Record, err error) error {
	code := workorder.ExitGeneral
	if errors.Is(err, runtime.ErrUnavailable) {
		code = workorder.ExitBox
	}
	return fault.New(code, fmt.Errorf("copy the output of task %s out of its sandbox: %w", rec.TaskID, err),
		"the sandbox is kept with all of it: when the cause is mended, `sandbox-agent result "+rec.TaskID+"` collects it")
}
