//go:build !linux

package testreport

import "syscall"

// changed is unknown here; size, inode and time of modification are compared.
func changed(*syscall.Stat_t) int64 { return 0 }
