// Package cmdutil has what the commands of all nouns share: streams, flag types, argument rules, completions and error helpers.
package cmdutil

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// IO are the streams of a command.
type IO struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Factory has what commands are made of. Use cases are methods of its Env.
type Factory struct {
	app.Env
	IO
	// Debug logs details to standard error, Verbose shows all events.
	Debug, Verbose bool
	// Reloads, if non-nil, lets a server read its configuration again on request.
	Reloads func() (asked <-chan struct{}, stop func())
}

// New connects an environment to the streams of a command: remarks and progress go to standard error, questions to a terminal.
func New(streams IO, env app.Env) *Factory {
	f := &Factory{Env: env, IO: streams}
	f.Note = func(line string) { fmt.Fprintln(f.Stderr, text.Clean(line)) }
	f.Progress = func(line string) {
		if f.Verbose || f.Color(f.Stderr) {
			f.Note(line)
		}
	}
	f.Logger = f.log
	if f.BuildEvents == nil {
		f.BuildEvents = func() (func(workorder.Event), func()) {
			v := f.NewView(f.Stderr, false)
			return v.Event, v.Close
		}
	}
	if f.Person() {
		f.Confirm = f.yes
	}
	return f
}

// With returns a factory with other streams.
func (f *Factory) With(streams IO) *Factory {
	env := f.Env
	env.Confirm = nil
	other := New(streams, env)
	other.Debug, other.Verbose, other.Reloads = f.Debug, f.Verbose, f.Reloads
	return other
}

func (f *Factory) log() *slog.Logger {
	level := slog.LevelWarn
	if f.Debug {
		level = slog.LevelDebug
	}
	return slog.New(f.LogHandler(&slog.HandlerOptions{Level: level}))
}

// Person reports whether a person can be asked.
func (s *IO) Person() bool {
	in, ok := s.Stdin.(*os.File)
	return ok && IsTerminal(in) && IsTerminal(s.Stderr)
}

// yes asks a question whose default is no.
func (s *IO) yes(ctx context.Context, question string) (bool, error) {
	fmt.Fprint(s.Stderr, question+" [y/N] ")
	line, err := bufio.NewReader(s.Input(ctx)).ReadString('\n')
	if ctx.Err() != nil {
		return false, Interrupted(ctx)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("ask: %w", err)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

// JSON prints a document. It escapes characters that JSON allows and a terminal interprets.
func (s *IO) JSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := s.Stdout.Write(text.EscapeControls(b.Bytes()))
	return err
}

// Done reports what a command has done: as a document, or as a line for a person.
func (s *IO) Done(asJSON bool, document any, format string, v ...any) error {
	if asJSON {
		return s.JSON(document)
	}
	_, err := fmt.Fprintf(s.Stdout, format+"\n", v...)
	return err
}

// Deleted reports that a sandbox was deleted, with the head of its branch.
func (s *IO) Deleted(name, head string, asJSON bool, err error) error {
	if err != nil {
		return err
	}
	was := ""
	if head != "" {
		was = fmt.Sprintf(" (was %.10s)", head)
	}
	return s.Done(asJSON, struct {
		Deleted string `json:"deleted"`
		Head    string `json:"head,omitempty"`
	}{name, head}, "deleted %s%s", name, was)
}

// Notes prints what was decided, a line each.
func (f *Factory) Notes(list []string) {
	for _, n := range list {
		f.Say(n)
	}
}

// Color reports whether output to w is coloured.
func (f *Factory) Color(w io.Writer) bool { return render.UseColor(IsTerminal(w), f.Getenv) }

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// TerminalSize returns the size of a terminal in characters; 0 if w is none.
func TerminalSize(w io.Writer) (width, height int) {
	if f, ok := w.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil {
			return w, h
		}
	}
	return 0, 0
}
