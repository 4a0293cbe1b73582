package image

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// partLine begins the layers of a part in the Dockerfile, and alwaysLine those of all images after it.
const (
	partLine   = "# part "
	alwaysLine = "# always"
)

// Parts returns the parts of the box's image that only some boxes need, in the order of their layers.
func Parts() []string { return partsOf(files) }

func partsOf(from fs.FS) (names []string) {
	b, err := fs.ReadFile(from, dockerfileName)
	if err != nil {
		return nil // the build reports it
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), partLine); ok {
			names = append(names, name)
		}
	}
	return names
}

// Sets returns all sets of parts that include the given ones, smaller sets first, each in the order of layers.
func Sets(with []string) (sets [][]string) {
	sets = [][]string{{}}
	for _, part := range Parts() {
		more := make([][]string, 0, 2*len(sets))
		for _, s := range sets {
			if !slices.Contains(with, part) {
				more = append(more, s)
			}
			more = append(more, append(slices.Clone(s), part))
		}
		sets = more
	}
	slices.SortStableFunc(sets, func(a, b []string) int { return len(a) - len(b) })
	return sets
}

// dockerfile returns a Dockerfile with only these parts.
func dockerfile(whole []byte, parts []string) []byte {
	var out bytes.Buffer
	wanted := true
	for line := range strings.Lines(string(whole)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), partLine); ok {
			wanted = slices.Contains(parts, name)
		} else if strings.TrimSpace(line) == alwaysLine {
			wanted = true
		}
		if wanted {
			out.WriteString(line)
		}
	}
	return out.Bytes()
}

// copied returns the files and directories of the context that a Dockerfile copies.
func copied(dockerfile []byte) (names []string) {
	for line := range strings.Lines(string(dockerfile)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "COPY" {
			names = append(names, f[1:len(f)-1]...)
		}
	}
	return names
}

// addPackages adds a file per package of the lock file: its name in the registry, its version and its checksum. A layer then depends
// only on its own packages.
func addPackages(files map[string][]byte) error {
	b, ok := files["packages/package-lock.json"]
	if !ok {
		return nil // the small image has none
	}
	var lock struct {
		Packages map[string]struct{ Name, Version, Integrity string }
	}
	if err := json.Unmarshal(b, &lock); err != nil {
		return fmt.Errorf("read packages/package-lock.json: %w", err)
	}
	for key, p := range lock.Packages {
		if name, ok := strings.CutPrefix(key, "node_modules/"); ok && !strings.Contains(name, "node_modules/") {
			files["packages/"+name] = fmt.Appendf(nil, "%s %s %s\n", cmp.Or(p.Name, name), p.Version, p.Integrity)
		}
	}
	return nil
}
