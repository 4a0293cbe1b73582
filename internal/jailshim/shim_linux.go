package jailshim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

const (
	// endTime is the time for the program to end its children after the signal.
	endTime = 5 * time.Second
	// Rounds and pause of the wait for a program that is already ending.
	soonRounds = 4
	soonPause  = 200 * time.Microsecond
	// lookEvery is how often the shim checks that the sandbox's directory exists.
	lookEvery = 15 * time.Second
	// maxOutput bounds the reported output after an early end, in bytes.
	maxOutput = 2 << 10
)

// Main runs the shim. It returns when the program and all its processes have ended.
func Main(ctx context.Context, in io.Reader, out io.WriteCloser) error {
	listener := os.NewFile(wire.ListenerFD, "users")
	proc.SetCloseOnExec()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGHUP) // the reader of the line may have ended
	var p Config
	var begin string
	d := json.NewDecoder(in)
	if err := d.Decode(&p); err != nil {
		return fmt.Errorf("read the shim's configuration: %w", err)
	}
	if err := d.Decode(&begin); err != nil || begin != Go {
		return errors.New("the sandbox is no longer wanted")
	}
	log, err := openLog(filepath.Join(p.Dir, LogFile))
	if err != nil {
		return err
	}
	ready := &readyWriter{out: out}
	err = run(ctx, p, listener, log, ready)
	err = errors.Join(err, removeGroups(p.Groups))
	if err != nil {
		fmt.Fprintln(log, err)
	}
	ready.write(log.text())
	if p.Throwaway {
		return errors.Join(err, RemoveAll(p.Dir))
	}
	return err
}

// readyWriter writes the line Ready once.
type readyWriter struct {
	out  io.WriteCloser
	once sync.Once
}

func (w *readyWriter) write(failure string) {
	w.once.Do(func() {
		_ = json.NewEncoder(w.out).Encode(Ready{Error: failure})
		_ = w.out.Close()
	})
}

// Write receives the guest's output, which reports that it serves.
func (w *readyWriter) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), wire.Ready) {
		w.write("")
	}
	return len(p), nil
}

// run runs the program to its end.
func run(ctx context.Context, p Config, listener *os.File, log, ready io.Writer) error {
	if err := proc.Adopt(); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	if err := makeGroups(p.Groups); err != nil {
		return err
	}
	killsR, killsW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer killsW.Close()
	files := []*os.File{listener}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	config, err := memory(p.Config)
	if err != nil {
		return err
	}
	files = append(files, config, killsR)
	for _, d := range p.Data {
		f, err := memory(d)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	program, err := proc.Start(context.WithoutCancel(ctx), proc.Spec{
		Argv: p.Argv, Env: p.Env, Dir: "/", Stdout: ready, Stderr: log, ExtraFiles: files, Tied: p.End, OwnSockets: p.OwnSockets,
		Cgroup: cgroup(p.Groups),
	})
	if err != nil {
		return fmt.Errorf("start the sandbox: %w", err)
	}
	// The socket must not outlive the guest.
	for _, f := range files {
		_ = f.Close()
	}
	files = nil
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if p.WatchBytes > 0 {
			watch(program.PID(), p.WatchBytes, killsW, program.Done())
		}
	}()
	select {
	case <-program.Done():
		if err := program.Wait(); err != nil { // a guest that ends by itself reports the reason, a killed one cannot
			fmt.Fprintf(log, "the sandbox ended: its guest: %v\n", err)
		}
	case <-ctx.Done():
		end(program, p.End)
	case <-gone(p.Dir, lookEvery, program.Done()):
		fmt.Fprintln(log, "the sandbox ended: its directory was removed")
		end(program, p.End)
	}
	<-watched
	// Wait for this process's children: a jail's first process ends after all others in it.
	bury := func() {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				return
			}
		}
	}
	// The kernel ends a jail whose first process was killed: that is faster than a search for the rest.
	for range soonRounds {
		if bury(); proc.Childless() {
			return nil
		}
		time.Sleep(soonPause)
	}
	if !proc.EndChildren(bury) {
		return errors.New("some processes of the sandbox could not be ended")
	}
	return nil
}

// end ends the program, after a time to end its own children.
func end(program *proc.Process, sig syscall.Signal) {
	program.Signal(sig)
	select {
	case <-program.Done():
	case <-time.After(endTime):
		program.Signal(syscall.SIGKILL)
		<-program.Done()
	}
}

// gone returns a channel that is closed when the directory is missing in two checks in a row: then no program can find
// the sandbox. The checks end with done.
func gone(dir string, every time.Duration, done <-chan struct{}) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		missed := 0
		for range proc.Ticks(done, every) {
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				missed = 0
			} else if missed++; missed == 2 {
				close(c)
				return
			}
		}
	}()
	return c
}

// memory returns a memory file with that content.
func memory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("sandbox", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	_, err = f.Write(content)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("create a memory file: %w", err)
	}
	return f, nil
}

// RemoveAll removes a directory with all content that a sandbox left in it, including directories without permissions.
// No process of the sandbox may run.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() { // not a link
			_ = os.Chmod(path, 0o700)
		}
		return nil // the second removal reports what remains
	})
	return os.RemoveAll(dir)
}
