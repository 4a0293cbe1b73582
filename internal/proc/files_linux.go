package proc

import (
	"math"

	"golang.org/x/sys/unix"
)

// SetCloseOnExec keeps children from inheriting the files that this program's caller left open, except the standard
// ones. A child that outlives this program would hold them: the lock of a calling script, or a pipe whose end a reader
// waits for. Kernels before 5.11 do not support it.
func SetCloseOnExec() {
	const firstOther = 3
	_ = unix.CloseRange(firstOther, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}
