package docker

import (
	"errors"
	"io/fs"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// denied returns the error for a socket that this user may not open; nil if err is another error.
func denied(host string, err error) error {
	path, local := strings.CutPrefix(host, "unix://")
	if !local || !errors.Is(err, fs.ErrPermission) && !strings.Contains(err.Error(), "permission denied") {
		return nil
	}
	return &runtime.DeniedError{Socket: path, Group: groupOf(path)}
}

// groupOf returns the name of the group that may open the socket; "" if it is unknown, has no name, or is root's.
func groupOf(socket string) string {
	var st unix.Stat_t
	const groupMayOpen = 0o060
	if err := unix.Stat(socket, &st); err != nil || st.Gid == 0 || st.Mode&groupMayOpen != groupMayOpen {
		return ""
	}
	g, err := user.LookupGroupId(strconv.FormatUint(uint64(st.Gid), 10))
	if err != nil {
		return ""
	}
	return g.Name
}
