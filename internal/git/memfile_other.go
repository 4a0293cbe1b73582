//go:build !linux

package git

import (
	"errors"
	"os"
)

// memoryFile is not supported: only the guest, which is Linux, holds a credential.
func memoryFile(string) (*os.File, error) {
	return nil, errors.New("git credentials are only supported on Linux")
}
