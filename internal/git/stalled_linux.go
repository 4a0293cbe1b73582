package git

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// clockTick is the unit of CPU time in /proc on every architecture that Go supports.
const clockTick = 10 * time.Millisecond

// canSee reports whether the kernel lets a process observe another one's connections (Linux 5.6).
var canSee = sync.OnceValue(func() bool {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(self)
	fd, err := unix.PidfdGetfd(self, self, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
})

// look sums the activity of a session's processes: git and its transports. Without a connection there is none to
// observe: ssh may leave it to a process in another session.
func look(session int) (a activity) {
	connected, hidden := 0, false
	all, err := os.ReadDir("/proc")
	if err != nil {
		return activity{}
	}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if sid, err := unix.Getsid(pid); err != nil || sid != session {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		if b, err := os.ReadFile(filepath.Join(dir, "stat")); err == nil {
			if s, err := proc.ParseStat(b); err == nil {
				a.cpu += time.Duration(s.Ticks) * clockTick
			}
		}
		if b, err := os.ReadFile(filepath.Join(dir, "io")); err == nil {
			for line := range strings.Lines(string(b)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				if n, err := strconv.ParseInt(value, 10, 64); err == nil && (name == "rchar" || name == "wchar") {
					a.disk += n
				}
			}
		}
		wire, n, ok := connections(pid, filepath.Join(dir, "fd"))
		a.wire += wire
		connected += n
		hidden = hidden || !ok
	}
	a.seen = connected > 0 && !hidden
	return a
}

// connections counts a process's connections and sums their bytes; ok is false if one cannot be read.
func connections(pid int, dir string) (bytes int64, count int, ok bool) {
	fds, err := os.ReadDir(dir)
	if err != nil {
		return 0, 0, os.IsNotExist(err) // it ended
	}
	self := -1
	defer func() {
		if self >= 0 {
			_ = unix.Close(self)
		}
	}()
	for _, e := range fds {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		n, nerr := strconv.Atoi(e.Name())
		if err != nil || nerr != nil || !strings.HasPrefix(to, "socket:") {
			continue
		}
		if self < 0 {
			if self, err = unix.PidfdOpen(pid, 0); err != nil {
				return bytes, count, errors.Is(err, unix.ESRCH)
			}
		}
		fd, err := unix.PidfdGetfd(self, n, 0)
		if errors.Is(err, unix.EPERM) {
			return bytes, count, false
		}
		if err != nil {
			continue // it was closed
		}
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			bytes += int64(info.Bytes_acked + info.Bytes_received)
			count++
		}
		_ = unix.Close(fd)
	}
	return bytes, count, true
}
