package git

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make memory file %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
