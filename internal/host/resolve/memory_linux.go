package resolve

import "golang.org/x/sys/unix"

func machineMemory() int64 {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return int64(i.Totalram) * int64(i.Unit) // no machine has 2^63 bytes
}
