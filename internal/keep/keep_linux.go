package keep

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
	// endTime is what a program has that ends its own children when it is asked to.
	endTime = 5 * time.Second
	// What ends by itself does so within some of these.
	soonRounds = 4
	soonPause  = 200 * time.Microsecond
	// lookEvery is how often a keeper looks whether its sandbox's folder is still there.
	lookEvery = 15 * time.Second
	// maxSaid bounds what of an early end is answered, in bytes.
	maxSaid = 2 << 10
)

// Main is the life of a keeper. It returns when the program has ended and nothing of it is left.
func Main(ctx context.Context, in io.Reader, out io.WriteCloser) error {
	listener := os.NewFile(wire.ListenerFD, "users")
	proc.KeepFiles()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGHUP) // the reader of the answer may be gone
	var p Plan
	var begin string
	d := json.NewDecoder(in)
	if err := d.Decode(&p); err != nil {
		return fmt.Errorf("read the keeper's plan: %w", err)
	}
	if err := d.Decode(&begin); err != nil || begin != Go {
		return errors.New("the sandbox is no longer wanted")
	}
	log, err := openLog(filepath.Join(p.Dir, LogFile))
	if err != nil {
		return err
	}
	answer := &answerer{out: out}
	err = hold(ctx, p, listener, log, answer)
	err = errors.Join(err, removeGroups(p.Groups))
	if err != nil {
		fmt.Fprintln(log, err)
	}
	answer.give(log.said())
	if p.Throwaway {
		return errors.Join(err, RemoveAll(p.Dir))
	}
	return err
}

// answerer gives one answer.
type answerer struct {
	out  io.WriteCloser
	once sync.Once
}

func (a *answerer) give(failure string) {
	a.once.Do(func() {
		_ = json.NewEncoder(a.out).Encode(Answer{Error: failure})
		_ = a.out.Close()
	})
}

// Write takes what the guest prints, which is that it serves.
func (a *answerer) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), wire.Ready) {
		a.give("")
	}
	return len(p), nil
}

// hold runs the program to its end.
func hold(ctx context.Context, p Plan, listener *os.File, log io.Writer, answer io.Writer) error {
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
		Argv: p.Argv, Env: p.Env, Dir: "/", Stdout: answer, Stderr: log, ExtraFiles: files, Tied: p.End, OwnSockets: p.OwnSockets,
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
		if err := program.Wait(); err != nil { // a guest that ends by itself says why, and one that is killed cannot
			fmt.Fprintf(log, "the sandbox ended: its guest: %v\n", err)
		}
	case <-ctx.Done():
		end(program, p.End)
	case <-gone(p.Dir, lookEvery, program.Done()):
		fmt.Fprintln(log, "the sandbox ended: its folder was removed")
		end(program, p.End)
	}
	<-watched
	// Its own children are waited for: a jail's first process is gone when all in it are.
	bury := func() {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				return
			}
		}
	}
	// The kernel ends a jail whose first process was killed: that takes less than to look for what is left.
	for range soonRounds {
		if bury(); proc.Childless() {
			return nil
		}
		time.Sleep(soonPause)
	}
	if !proc.EndChildren(bury) {
		return errors.New("something of the sandbox could not be ended")
	}
	return nil
}

// end ends the program: it has a time to end its own children.
func end(program *proc.Process, sig syscall.Signal) {
	program.Signal(sig)
	select {
	case <-program.Done():
	case <-time.After(endTime):
		program.Signal(syscall.SIGKILL)
		<-program.Done()
	}
}

// gone returns a channel that is closed when the folder is not there in two looks: nothing can find the sandbox any
// more. It looks until done.
func gone(dir string, every time.Duration, done <-chan struct{}) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for missed := 0; missed < 2; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
				missed++
			} else {
				missed = 0
			}
		}
		close(c)
	}()
	return c
}

// memory is a file of memory with that content.
func memory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("sandbox", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file of memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	_, err = f.Write(content)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("make a file of memory: %w", err)
	}
	return f, nil
}

// RemoveAll removes a folder with whatever a sandbox has made of it, also folders that it took its own rights to.
// Nothing of the sandbox may run.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() { // it is no link
			_ = os.Chmod(path, 0o700)
		}
		return nil // what stays shows in the end
	})
	return os.RemoveAll(dir)
}
