package artifact

import (
	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// filter returns the system call filter of this machine's jails, and its file name, which has the architecture of uname.
func filter() (name string, content []byte, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", nil, err
	}
	content, err = proc.CallFilter()
	return "filter-" + unix.ByteSliceToString(u.Machine[:]), content, err
}
