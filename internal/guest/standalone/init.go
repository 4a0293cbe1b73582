package standalone

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// wakeEvery is how often the server is woken, in case a root command stopped it.
const wakeEvery = time.Second

// Init runs the sandbox's first process: it starts the server, forwards signals to it and reaps orphans. It returns the
// server's exit code. It owns wait4(-1), so nothing in its process may wait for its own child.
func Init(self string, signals <-chan os.Signal) (int, error) {
	// os.StartProcess and never Wait, for the reason above.
	p, err := os.StartProcess(self, []string{"guest", "serve"}, &os.ProcAttr{ //nolint:forbidigo // see above
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 1, fmt.Errorf("start the sandbox's server: %w", err)
	}
	server := p.Pid
	_ = p.Release()
	go func() {
		wake := time.NewTicker(wakeEvery)
		defer wake.Stop()
		for {
			select {
			case s := <-signals:
				if sig, ok := s.(syscall.Signal); ok {
					_ = syscall.Kill(server, sig)
				}
			case <-wake.C:
				_ = syscall.Kill(server, syscall.SIGCONT)
			}
		}
	}()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			time.Sleep(time.Millisecond) // no child: impossible before the server has ended
		case pid == server && ws.Exited():
			return ws.ExitStatus(), nil
		case pid == server && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		}
	}
}
