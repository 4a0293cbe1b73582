package taskcmd

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// textOptions are the ways to give a task, or an addition to one.
type textOptions struct {
	words, file       string
	wordsSet, fileSet bool
	in                bool // "-", as an argument
	issue             int  // 0 if the task is not an issue
}

// given reports whether there is a text in the user's words.
func (o *textOptions) given() bool { return o.wordsSet || o.fileSet || o.in }

// stdin reports whether the text comes from standard input.
func (o *textOptions) stdin() bool {
	return o.in || o.wordsSet && o.words == "-" || o.fileSet && o.file == "-"
}

// read returns the text byte for byte.
func (o *textOptions) read(ctx context.Context, f *cmdutil.Factory) (string, error) {
	given := 0
	for _, g := range []bool{o.wordsSet, o.fileSet, o.in, o.issue != 0} {
		if g {
			given++
		}
	}
	switch {
	case given == 0:
		return "", exiterr.New(workorder.ExitUsage, errors.New("no task given"),
			"give --task TEXT, --task-file FILE, --issue N, or - to read it from standard input")
	case given > 1:
		return "", app.Usagef("give the task once: --task, --task-file, --issue or -")
	case o.stdin(), o.fileSet:
		name := "-"
		if !o.stdin() {
			name = o.file
		}
		text, err := readText(ctx, f, "task", name, workorder.MaxTask)
		if err != nil {
			return "", err
		}
		return text, app.CheckTaskText(text)
	}
	return o.words, app.CheckTaskText(o.words)
}

// readText reads a text from a file, or from standard input for "-": at most one byte more than most.
func readText(ctx context.Context, f *cmdutil.Factory, what, name string, most int64) (string, error) {
	in := f.Input(ctx)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", app.Usagef("read the %s: %w", what, err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	switch {
	case ctx.Err() != nil:
		return "", cmdutil.Interrupted(ctx)
	case err != nil:
		return "", app.Usagef("read the %s: %w", what, err)
	}
	return string(text), nil
}
