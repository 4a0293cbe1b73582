package proc

import (
	"errors"

	"golang.org/x/sys/unix"
)

// limitData bounds the memory of a process that was just started. It needs no privilege: a limit may always be lowered.
func limitData(pid int, bytes uint64) error {
	var now unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &now)
	if err == nil {
		bytes = min(bytes, now.Cur, now.Max)
		err = unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: bytes}, nil)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended
	}
	return err
}
