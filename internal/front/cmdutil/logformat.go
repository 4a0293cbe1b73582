package cmdutil

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Formats of what the program itself writes to standard error.
const (
	logText = "text"
	logJSON = "json"
)

// LogFormatVar adds the flag for the format of standard error to all commands. It takes effect when it is read, so that a
// mistake in a later flag is reported in that format, too.
func (f *Factory) LogFormatVar(root *cobra.Command) {
	root.PersistentFlags().Var(&logFormat{f: f, value: logText}, "log-format", "messages as text (default) or json")
	root.PersistentFlags().Lookup("log-format").DefValue = "" // help lines are short
	// It can only fail for a flag that does not exist.
	_ = root.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{logText, logJSON}, cobra.ShellCompDirectiveNoFileComp))
}

type logFormat struct {
	f     *Factory
	value string
}

func (l *logFormat) String() string { return l.value }
func (l *logFormat) Type() string   { return "string" }

func (l *logFormat) Set(v string) error {
	raw := l.f.CommandStderr()
	switch v {
	case logText:
		l.f.Stderr = raw
	case logJSON:
		l.f.Stderr = &jsonLines{out: raw, log: slog.New(slog.NewJSONHandler(raw, nil))}
		l.f.Confirm = nil // a question is no line of a log
	default:
		return fmt.Errorf("use %s or %s", logText, logJSON)
	}
	l.value = v
	return nil
}

// CommandStderr is standard error for the output of a command in a sandbox, which has no format.
func (f *Factory) CommandStderr() io.Writer {
	if j, ok := f.Stderr.(*jsonLines); ok {
		return j.out
	}
	return f.Stderr
}

// LogHandler writes a log to standard error.
func (f *Factory) LogHandler(o *slog.HandlerOptions) slog.Handler {
	if j, ok := f.Stderr.(*jsonLines); ok {
		return slog.NewJSONHandler(j.out, o)
	}
	return slog.NewTextHandler(f.Stderr, o)
}

// jsonLines makes a JSON object of each line. A line that is one stays as it is.
type jsonLines struct {
	out io.Writer
	log *slog.Logger

	mu   sync.Mutex
	part []byte // of a line
}

func (w *jsonLines) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.part = append(w.part, p...)
	for len(w.part) > 0 {
		end := bytes.IndexByte(w.part, '\n')
		if message.Match(w.part) && bytes.HasSuffix(w.part, []byte("\n")) { // all lines of a message are written at once
			end = len(w.part) - 1
		}
		if end < 0 {
			break
		}
		line := w.part[:end]
		if err := w.line(bytes.TrimSpace(line)); err != nil {
			return 0, err
		}
		w.part = w.part[end+1:]
	}
	return len(p), nil
}

func (w *jsonLines) line(line []byte) error {
	if len(line) > 0 && line[0] == '{' && json.Valid(line) {
		_, err := w.out.Write(append(bytes.Clone(line), '\n'))
		return err
	}
	if msg, ok := strings.CutPrefix(string(line), "error: "); ok {
		w.log.Error(text.Clean(msg))
	} else if msg, ok := strings.CutPrefix(msg, "warning: "); ok {
		w.log.Warn(text.Clean(msg))
	} else if msg != "" {
		w.log.Info(text.Clean(msg))
	}
	return nil
}

// message matches the beginning of a message.
var message = lazyregexp.New(`^(error|warning|hint|note): `)
