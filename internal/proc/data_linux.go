package proc

import "strconv"

// limitData returns the command line that starts path with argv in bounds of memory. The shell sets the limit before
// it becomes the program: one that is set from outside comes too late for a child that the program starts at once. A
// lower limit that was inherited stays.
func limitData(path string, argv []string, bytes uint64) (string, []string) {
	const script = `ulimit -d "$0" || [ "$(ulimit -d)" -le "$0" ] || exit 126; exec "$@"`
	return "/bin/sh", append([]string{"sh", "-c", script, strconv.FormatUint(bytes>>10, 10), path}, argv[1:]...)
}
