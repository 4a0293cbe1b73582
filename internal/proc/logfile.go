package proc

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// LogFile is a bounded log of this user in a directory where others may write. Several programs may write to it.
type LogFile struct {
	mu   sync.Mutex
	f    *os.File
	most int64
}

// OpenLog opens or creates a log, which is emptied before it would exceed most bytes. It refuses links, special files and
// files of other users.
func OpenLog(path string, most int64) (*LogFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	if err := ownFile(f); err != nil {
		return nil, fmt.Errorf("open the log %s: %w", path, err)
	}
	return &LogFile{f: f, most: most}, nil
}

// ownFile makes sure that a file belongs to this user alone, and closes any other.
func ownFile(f *os.File) (err error) {
	defer func() {
		if err != nil {
			_ = f.Close() // nothing was written
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it is not this user's file: %w", os.ErrPermission)
	}
	return f.Chmod(0o600) // others may have made it readable
}

func (l *LogFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if st, err := l.f.Stat(); err == nil && st.Size()+int64(len(b)) > l.most {
		if err := l.f.Truncate(0); err != nil {
			return 0, err
		}
	}
	return l.f.Write(b)
}

// Close closes the file.
func (l *LogFile) Close() error { return l.f.Close() }
