package proc

// MaskedPaths are the files and directories of /proc that tell of the whole machine. Engines hide them in a container
// (`maskedPaths` of the OCI runtime specification); a sandbox that has a /proc of its own hides them as well.
var MaskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
	"/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
}

// ReadOnlyPaths are those of /proc through which root changes the whole machine. Engines mount them read-only.
var ReadOnlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
