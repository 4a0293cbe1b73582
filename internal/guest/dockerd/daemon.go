package dockerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// maxLog bounds a daemon's log file; when it is reached the end is kept.
	maxLog  = 16 << 20
	keepLog = 256 << 10
	logTick = 5 * time.Second
	// tailLog is how many bytes of a log an error includes.
	tailLog = 2 << 10
)

type daemons struct {
	containerd, dockerd *daemon
}

// daemon is a running process that writes to a log file: a grandchild would keep a pipe open.
type daemon struct {
	name string
	log  string
	p    *proc.Process
}

func spawn(ctx context.Context, name, logDir string, s proc.Spec) (*daemon, error) {
	path := filepath.Join(logDir, name+".log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer f.Close()
	s.Stdout, s.Stderr = f, f
	// The daemon outlives the step that starts it: Stop ends it.
	p, err := proc.Start(context.WithoutCancel(ctx), s)
	if err != nil {
		return nil, err
	}
	d := &daemon{name: name, log: path, p: p}
	go d.capLog()
	return d, nil
}

// until runs ready and fails early if the daemon exits first.
func (d *daemon) until(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	errc := make(chan error, 1)
	go func() { errc <- ready(ctx) }()
	select {
	case err := <-errc:
		if err == nil {
			return nil
		}
		select {
		case <-d.p.Done():
			return d.exited()
		default:
		}
		return fmt.Errorf("%s is not ready after %s: %w; end of its log:\n%s", d.name, limit, err, d.tail())
	case <-d.p.Done():
		return d.exited()
	}
}

func (d *daemon) exited() error {
	err := cmp.Or(d.p.Wait(), errors.New("exit status 0"))
	return fmt.Errorf("%s ended: %w; end of its log:\n%s", d.name, err, d.tail())
}

func (d *daemon) tail() string {
	b, err := readTail(d.log, tailLog)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// end stops the daemon within ctx, by force if necessary.
func (d *daemon) end(ctx context.Context) {
	if d == nil {
		return
	}
	d.p.Signal(syscall.SIGTERM)
	select {
	case <-d.p.Done():
	case <-ctx.Done():
		d.p.Signal(syscall.SIGKILL)
	}
}

// capLog keeps the log from filling the disk. The daemon has the file open, so it is cut in place.
func (d *daemon) capLog() {
	for range proc.Ticks(d.p.Done(), logTick) {
		if st, err := os.Stat(d.log); err == nil && st.Size() > maxLog {
			_ = cutLog(d.log) // tried again at the next tick
		}
	}
}

func cutLog(path string) error {
	b, err := readTail(path, keepLog)
	if err != nil {
		return err
	}
	if err := os.Truncate(path, 0); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(append([]byte("[…] older lines were dropped\n"), b...))
	return errors.Join(err, f.Close())
}

// readTail reads the last n bytes of a file, from the start of a line.
func readTail(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, st.Size()-n)
	b, err := io.ReadAll(io.NewSectionReader(f, from, n))
	if from > 0 {
		if _, rest, ok := strings.Cut(string(b), "\n"); ok {
			b = []byte(rest)
		}
	}
	return b, err
}
