package proc

import (
	"math"

	"golang.org/x/sys/unix"
)

// KeepFiles sees to it that no child gets the files that our caller left open beyond the standard ones. A child that
// outlives us would hold them: the lock of a script that calls us, a pipe whose end is waited for. Kernels before 5.11 go on without.
func KeepFiles() {
	const firstOther = 3
	_ = unix.CloseRange(firstOther, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}
