package browse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// DevCommand is the command of the box with which the agent uses the development server.
const DevCommand = "entrypoint dev"

const (
	// devVar is the variable with which the agent's commands find the server: an agentServer.
	devVar = "SANDBOX_AGENT_DEV"
	// devDir is where the server of the agent has its log and its lock.
	devDir = "/tmp/sandbox-agent-dev"
	// serverGrace is the time from SIGTERM to SIGKILL for the server.
	serverGrace = 5 * time.Second
	// devLogSize bounds the log in bytes: a longer one starts over.
	devLogSize = 8 << 20
	// devLogLines is the number of lines that logs prints without a number.
	devLogLines = 100
	// serverTail is how much of the output a failed start can quote, in bytes.
	serverTail = 4 << 10
)

// agentServer is the development server that the agent starts. A process of its own, the role "dev serve", holds a lock while it runs.
type agentServer struct {
	Dev workorder.Dev `json:"dev"`
	Dir string        `json:"dir"` // in which the command starts
	Log string        `json:"log"` // directory of log and lock
}

// DevEnv returns the variable that the agent's commands need for Dev.
func DevEnv(d *workorder.Dev, dir string) string {
	b, _ := json.Marshal(agentServer{*d, dir, devDir}) // it cannot fail
	return devVar + "=" + string(b)
}

// running is what a running server writes into its lock.
type running struct {
	PID    int    `json:"pid"`
	Origin string `json:"origin"` // empty until it is ready
}

// Dev runs a command for the agent's development server: start, restart, stop, status or logs. It returns the exit code.
func Dev(ctx context.Context, args []string, out io.Writer) (code int, err error) {
	var a agentServer
	if err := json.Unmarshal([]byte(os.Getenv(devVar)), &a); err != nil {
		return workorder.ExitUsage, errors.New("no development server: the project file has no key `dev`, or this is not the agent's environment")
	}
	verb := strings.Join(args, " ")
	switch verb {
	case "start":
		err = a.start(ctx, out)
	case "restart":
		if err = a.stop(io.Discard); err == nil {
			err = a.start(ctx, out)
		}
	case "stop":
		err = a.stop(out)
	case "status":
		s, runs := a.state()
		if !runs {
			fmt.Fprintln(out, "stopped")
			return workorder.ExitGeneral, nil
		}
		s.print(out)
	case "serve":
		err = a.serve(ctx, out)
	default:
		n := devLogLines
		if len(args) == 2 {
			if n, err = strconv.Atoi(args[1]); err != nil || n < 1 {
				n = 0
			}
		}
		if len(args) == 0 || len(args) > 2 || args[0] != "logs" || n == 0 {
			return workorder.ExitUsage, errors.New("usage: " + DevCommand + " start | restart | stop | status | logs [LINES]")
		}
		err = a.logs(out, n)
	}
	if err != nil {
		return workorder.ExitGeneral, err
	}
	return workorder.ExitOK, nil
}

func (s running) print(out io.Writer) {
	if s.Origin == "" {
		fmt.Fprintf(out, "starting (pid %d)\n", s.PID)
		return
	}
	fmt.Fprintf(out, "running at %s (pid %d)\n", s.Origin, s.PID)
}

func (a agentServer) lockFile() string { return filepath.Join(a.Log, "lock") }
func (a agentServer) logFile() string  { return filepath.Join(a.Log, "dev.log") }

// state returns the state of a server that runs or starts.
func (a agentServer) state() (s running, runs bool) {
	f := flock.New(a.lockFile(), flock.SetFlag(os.O_RDWR))
	free, err := f.TryLock()
	if err != nil {
		return s, false // never started
	}
	if free {
		_ = f.Unlock()
		return s, false
	}
	b, err := os.ReadFile(a.lockFile())
	if err == nil {
		_ = json.Unmarshal(b, &s) // what starts has not written it yet
	}
	return s, true
}

// start starts the server in a process of its own, and waits until it is ready.
func (a agentServer) start(ctx context.Context, out io.Writer) error {
	if s, runs := a.state(); runs {
		s.print(out)
		return nil
	}
	said, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the development server: %w", err)
	}
	defer said.Close()
	outlives := context.WithoutCancel(ctx)
	_, err = proc.Start(outlives, proc.Spec{Argv: []string{"/proc/self/exe", "dev", "serve"}, Stdout: write})
	err = errors.Join(err, write.Close())
	var b []byte
	if err == nil {
		b, err = io.ReadAll(said) // serve closes it
	}
	if err != nil {
		return fmt.Errorf("start the development server: %w", err)
	}
	if s, runs := a.state(); runs && s.Origin != "" {
		s.print(out)
		return nil
	}
	return errors.New(strings.TrimSpace(string(b)))
}

// stop ends the server with all that it has started.
func (a agentServer) stop(out io.Writer) error {
	for sent, until := false, time.Now().Add(stopTime+serverGrace); ; time.Sleep(probePause / 2) {
		s, runs := a.state()
		switch {
		case !runs && sent:
			fmt.Fprintln(out, "stopped")
			return nil
		case !runs:
			fmt.Fprintln(out, "not running")
			return nil
		case time.Now().After(until):
			return fmt.Errorf("the development server (pid %d) does not end", s.PID)
		case !sent && s.PID > 0:
			if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("stop the development server: %w", err)
			}
			sent = true
		}
	}
}

func (a agentServer) logs(out io.Writer, lines int) error {
	b, err := os.ReadFile(a.logFile())
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("the development server was not started: " + DevCommand + " start")
	}
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	at := len(bytes.TrimSuffix(b, []byte("\n")))
	for ; lines > 0 && at >= 0; lines-- {
		at = bytes.LastIndexByte(b[:at], '\n')
	}
	_, err = out.Write(b[at+1:])
	return err
}

// serve runs the server until it ends or this process gets SIGTERM. It reports to out whether it is ready, by closing it.
func (a agentServer) serve(ctx context.Context, out io.Writer) (err error) {
	closer, ok := out.(io.Closer)
	if !ok {
		return errors.New("the output cannot be closed")
	}
	defer func() {
		if err != nil {
			fmt.Fprintln(out, err)
		}
		err = nil
	}()
	ctx, end := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer end()
	if err := os.MkdirAll(a.Log, 0o700); err != nil {
		return fmt.Errorf("create the directory of the log: %w", err)
	}
	f := flock.New(a.lockFile(), flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))
	try, cancel := context.WithTimeout(ctx, dialTime) // another command may look at it
	defer cancel()
	if locked, err := f.TryLockContext(try, probePause/10); err != nil || !locked {
		return errors.New("another command has just started the development server")
	}
	defer func() { _ = f.Unlock() }()
	// Before that: a server may have started programs that outlive it.
	defer proc.EndChildren(func() { _, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil) })
	if err := errors.Join(os.WriteFile(a.logFile(), nil, 0o600), a.write(running{PID: os.Getpid()}), proc.Adopt()); err != nil {
		return err
	}
	log, err := proc.OpenLog(a.logFile(), devLogSize)
	if err != nil {
		return err
	}
	defer log.Close()
	server, err := Serve(ctx, &a.Dev, func(ctx context.Context) Ended {
		tail := proc.NewTail(serverTail)
		both := io.MultiWriter(log, tail)
		err := proc.Run(ctx, proc.Spec{
			Argv: []string{"bash", "-c", a.Dev.Command}, Dir: a.Dir, Env: append(os.Environ(), "PORT="+strconv.Itoa(a.Dev.Port)),
			Stdout: both, Stderr: both, Grace: serverGrace,
		})
		fmt.Fprintf(both, "[the development server ended: exit code %d]\n", proc.ExitCode(err))
		return Ended{ExitCode: proc.ExitCode(err), Tail: tail.String(), Err: err}
	})
	if err != nil {
		return err
	}
	if err = a.write(running{os.Getpid(), server.Origin}); err == nil {
		err = closer.Close()
	}
	if err != nil {
		server.Stop()
		return err
	}
	select {
	case <-ctx.Done():
		server.Stop()
	case <-server.ended:
	}
	return nil
}

func (a agentServer) write(s running) error {
	b, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(a.lockFile(), b, 0o600)
	}
	return err
}
