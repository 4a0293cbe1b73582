package proc

import (
	"math"

	"golang.org/x/sys/unix"
)

// SetCloseOnExec keeps children from inheriting the open files of this program's caller, except the standard ones.
// Kernels before 5.11 do not support it.
func SetCloseOnExec() {
	const firstOther = 3
	_ = unix.CloseRange(firstOther, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}
