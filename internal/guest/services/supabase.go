package services

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// supabaseTimeout bounds the start: the first time, about ten images of three gigabytes in total come from a registry.
	supabaseTimeout = 20 * time.Minute
	// supabaseQuery bounds the CLI's short commands.
	supabaseQuery = time.Minute
	supabaseGrace = 2 * time.Second
	supabaseName  = "supabase"
)

// SupabaseConfig sets where, and as which user, the Supabase CLI runs.
type SupabaseConfig struct {
	// Dir is the workspace. Scratch is used instead if the workspace has no supabase/config.toml.
	Dir, Scratch string
	User         *proc.Credential
	// Env is the CLI's complete environment, with PATH and HOME.
	Env            []string
	LogDir, LogRel string
	// Clean masks secrets in a log; nil if there are none.
	Clean func(io.Writer) io.WriteCloser
	Emit  func(workorder.Event)
}

// Supabase is a running Supabase stack.
type Supabase struct {
	// Env holds the variables for the project's commands.
	Env map[string]string
	End workorder.ServiceEnd
}

// UpSupabase starts the stack with the Supabase CLI, and returns its exports. The result is never nil.
func UpSupabase(ctx context.Context, cfg SupabaseConfig) (*Supabase, error) {
	start := time.Now()
	s := &Supabase{End: workorder.ServiceEnd{
		Name: supabaseName, Image: "supabase CLI", State: stateFailed, Log: filepath.Join(cfg.LogRel, "service-supabase.log"),
	}}
	emit := func(status, said string) {
		cfg.Emit(workorder.Event{
			Type: workorder.EventService, Name: supabaseName, Status: status, Text: text.Prefix(said, workorder.MaxEventText),
			DurationMS: time.Since(start).Milliseconds(),
		})
	}
	emit("starting", "")
	tail := proc.NewTail(maxTail)
	env, err := startSupabase(ctx, cfg, tail, func(line string) { emit("starting", line) })
	if err != nil {
		s.End.Tail = tail.String()
		err = fmt.Errorf("start supabase: %w", err)
		emit("failed", err.Error())
		return s, err
	}
	s.Env = env
	s.End.State, s.End.ReadyMS = stateReady, time.Since(start).Milliseconds()
	emit("ready", env["SUPABASE_URL"])
	return s, nil
}

func startSupabase(ctx context.Context, cfg SupabaseConfig, tail *proc.Tail, tell func(string)) (map[string]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, supabaseTimeout, fmt.Errorf("not started after %s", supabaseTimeout))
	defer cancel()
	log, err := newLog(cfg.LogDir, "service-supabase.log", cfg.Clean)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	dir := cfg.Dir
	if _, err := os.Stat(filepath.Join(dir, "supabase", "config.toml")); errors.Is(err, os.ErrNotExist) {
		dir = cfg.Scratch
		tell("the repository has no supabase/config.toml: using the CLI's defaults")
		if _, err := supabase(ctx, cfg, dir, log, "init"); err != nil {
			return nil, err
		}
	}
	lines := progress(tell)
	err = proc.Run(ctx, spec(cfg, dir, io.MultiWriter(log, tail, lines), "start"))
	if err != nil {
		return nil, fmt.Errorf("%w; end of its output:\n%s", absent(err), tail)
	}
	out, err := supabase(ctx, cfg, dir, log, "status", "-o", "env")
	if err != nil {
		return nil, err
	}
	env := supabaseEnv(out)
	if env["DATABASE_URL"] == "" {
		return nil, errors.New("its status has no DB_URL, so DATABASE_URL cannot be set: is this CLI a supported version?")
	}
	return env, nil
}

func spec(cfg SupabaseConfig, dir string, out io.Writer, args ...string) proc.Spec {
	return proc.Spec{
		Argv: append([]string{"supabase", "--workdir", dir}, args...), Dir: dir, Env: cfg.Env, User: cfg.User,
		Stdout: out, Stderr: out, Grace: supabaseGrace,
	}
}

func supabase(ctx context.Context, cfg SupabaseConfig, dir string, log io.Writer, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, supabaseQuery)
	defer cancel()
	tail := proc.NewTail(maxTail)
	s := spec(cfg, dir, nil, args...)
	s.Stderr = io.MultiWriter(log, tail)
	out, err := proc.Output(ctx, s)
	if err != nil {
		if errors.Is(err, proc.ErrNotFound) {
			return nil, absent(err)
		}
		return nil, fmt.Errorf("supabase %s: %w: %s", args[0], err, strings.TrimSpace(tail.String()))
	}
	return out, nil
}

// absent returns the advice for an image without the Supabase CLI.
func absent(err error) error {
	if errors.Is(err, proc.ErrNotFound) {
		return fmt.Errorf(
			"the project requires supabase: true, but the image has no Supabase CLI: use an image that has `supabase` on its PATH: %w", err,
		)
	}
	return err
}

// supabaseEnv parses NAME="value" lines and adds the database's usual name.
func supabaseEnv(out []byte) map[string]string {
	env := map[string]string{}
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		k, v, ok := strings.Cut(strings.TrimSpace(sc.Text()), "=")
		if !ok || !workorder.ValidEnvName(k) {
			continue
		}
		if u, err := strconv.Unquote(v); err == nil {
			v = u
		}
		switch k {
		case "DB_URL":
			env["DATABASE_URL"] = v
			env["SUPABASE_DB_URL"] = v
		case "API_URL":
			env["SUPABASE_URL"] = v
		default:
			env["SUPABASE_"+strings.TrimPrefix(k, "SUPABASE_")] = v
		}
	}
	return env
}

// progress calls tell with the last word of each line, at most once in progressPause.
func progress(tell func(string)) *text.Lines {
	var last time.Time
	return text.NewLines(text.MaxLine, func(b []byte, _ int64) {
		line := string(b[bytes.LastIndexByte(b, '\r')+1:])
		if line = strings.TrimSpace(line); line != "" && time.Since(last) >= progressPause {
			last = time.Now()
			tell(line)
		}
	})
}

const (
	// maxServiceLog bounds the stored output of one service, in bytes.
	maxServiceLog = 8 << 20
	tailLines     = "40"
	maxTail       = 4 << 10
	// tailTimeout bounds reading the end of a log for an error message, after the service's own time has run out.
	tailTimeout = 5 * time.Second
)

func (s *Stack) logName(u *unit) string { return "service-" + u.spec.Name + ".log" }

// logFile is the log of one service: the first maxServiceLog bytes of its output, with secrets redacted.
type logFile struct {
	io.WriteCloser // redacts secrets
	f              *os.File
}

func newLog(dir, name string, clean func(io.Writer) io.WriteCloser) (*logFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if clean == nil {
		clean = (*redact.Set)(nil).Writer
	}
	return &logFile{WriteCloser: clean(proc.NewHead(f, maxServiceLog)), f: f}, nil
}

func (l *logFile) Close() error { return errors.Join(l.WriteCloser.Close(), l.f.Close()) }

// follow copies the service's output to its log file until it ends.
func (s *Stack) follow(ctx context.Context, u *unit) {
	log, err := newLog(s.cfg.LogDir, s.logName(u), s.cfg.Clean)
	if err != nil {
		s.cfg.Log.Warn("log of service", "service", u.spec.Name, "error", err)
		return
	}
	ctx, u.logCancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer log.Close()
		r, err := s.cfg.Client.ContainerLogs(ctx, u.id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
		if err != nil {
			s.cfg.Log.Warn("log of service", "service", u.spec.Name, "error", err)
			return
		}
		defer r.Close()
		_, _ = stdcopy.StdCopy(log, log, r) // ends with the container or with the engine
	}()
}

func (s *Stack) logTail(ctx context.Context, u *unit) string {
	if u.id == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tailTimeout)
	defer cancel()
	r, err := s.cfg.Client.ContainerLogs(ctx, u.id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: tailLines})
	if err != nil {
		return fmt.Sprintf("(log not readable: %v)", err)
	}
	defer r.Close()
	tail := proc.NewTail(maxTail)
	_, _ = stdcopy.StdCopy(tail, tail, r) // partial output is better than none
	return strings.ToValidUTF8(strings.TrimSpace(tail.String()), "�")
}
