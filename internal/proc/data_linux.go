package proc

import "strconv"

// limitData returns the command line that starts path with argv in bounds of memory. A shell sets the limit before the
// program starts, so that its first child has it, too. A lower inherited limit stays.
func limitData(path string, argv []string, bytes uint64) (string, []string) {
	const script = `ulimit -d "$0" || [ "$(ulimit -d)" -le "$0" ] || exit 126; exec "$@"`
	return "/bin/sh", append([]string{"sh", "-c", script, strconv.FormatUint(bytes>>10, 10), path}, argv[1:]...)
}
