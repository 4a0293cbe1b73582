//go:build !linux

package resolve

// machineMemory is 0, because an engine's virtual machine has less memory than this machine.
func machineMemory() int64 { return 0 }
