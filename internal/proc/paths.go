package proc

// MaskedPaths are the paths of /proc that show the whole machine: `maskedPaths` of the OCI runtime specification.
var MaskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
	"/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
}

// ReadOnlyPaths are the paths of /proc by which root changes the whole machine.
var ReadOnlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
