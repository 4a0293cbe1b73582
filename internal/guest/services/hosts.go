package services

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// hostsMark ends the lines of this package, so that writing again replaces them.
const hostsMark = "# sandbox-agent service"

// WriteHosts adds names to a hosts file and keeps every other line. The file is
// written in place, because the engine mounts it into the box, where it cannot
// be replaced; it is extended first and cut last, so that a reader in between finds
// complete lines.
func WriteHosts(path string, names map[string]netip.Addr) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("write service names: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write service names: %w", err)
	}
	defer f.Close()
	text := hostsText(old, names)
	if _, err := f.WriteAt(text, 0); err != nil {
		return fmt.Errorf("write service names: %w", err)
	}
	if err := f.Truncate(int64(len(text))); err != nil {
		return fmt.Errorf("write service names: %w", err)
	}
	return nil
}

func hostsText(old []byte, names map[string]netip.Addr) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(string(old)) {
		if !strings.HasSuffix(strings.TrimSpace(line), hostsMark) {
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&b, "%s\t%s %s\n", names[n], n, hostsMark)
	}
	return b.Bytes()
}
