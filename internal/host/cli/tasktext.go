package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
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

// taskText returns the task byte for byte.
func (o *runOptions) taskText(ctx context.Context, a *App) (string, error) {
	t := &o.text
	given := 0
	for _, g := range []bool{t.wordsSet, t.fileSet, t.in, t.issue != 0} {
		if g {
			given++
		}
	}
	switch {
	case given == 0:
		return "", fault.New(workorder.ExitUsage, errors.New("no task given"), "give --task TEXT, --task-file FILE, --issue N, or - to read it from standard input")
	case given > 1:
		return "", usage("give the task once: --task, --task-file, --issue or -")
	}
	var text []byte
	var err error
	switch {
	case t.issue < 0:
		return "", usage("--issue %d is no issue's number", t.issue)
	case t.issue > 0:
		task, err := o.issueTask(ctx, a)
		if err != nil {
			return "", err
		}
		text = []byte(task)
	case t.stdin():
		if text, err = io.ReadAll(io.LimitReader(a.stdin(ctx), workorder.MaxTask+1)); ctx.Err() != nil {
			return "", tasks.ErrLeft
		} else if err != nil {
			return "", fmt.Errorf("read the task from standard input: %w", err)
		}
	case t.fileSet:
		f, err := os.Open(t.file)
		if err != nil {
			return "", usage("read the task: %w", err)
		}
		defer f.Close()
		if text, err = io.ReadAll(io.LimitReader(f, workorder.MaxTask+1)); err != nil {
			return "", usage("read the task: %w", err)
		}
	default:
		text = []byte(t.words)
	}
	switch {
	case len(text) > workorder.MaxTask:
		return "", usage("the task has more than %d bytes", workorder.MaxTask)
	case !utf8.Valid(text):
		return "", usage("the task is not valid UTF-8 text")
	}
	if slices.Contains(text, 0) {
		return "", usage("the task contains a NUL byte")
	}
	if strings.TrimSpace(string(text)) == "" {
		return "", usage("the task is empty")
	}
	return string(text), nil
}
