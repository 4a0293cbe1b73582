package artifact

import (
	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// filter is the filter of system calls of this machine's jails, and the name of its file: the architecture as uname says it.
func filter() (name string, content []byte, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", nil, err
	}
	content, err = proc.CallFilter()
	return "filter-" + unix.ByteSliceToString(u.Machine[:]), content, err
}
