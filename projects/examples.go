package projects

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// The shipped projects are part of the program, so that they work anywhere.
//
//go:embed examples/*.yaml
var examples embed.FS

// ExampleNames lists the shipped projects.
func ExampleNames() []string {
	var names []string
	entries, _ := fs.ReadDir(examples, "examples") // of an embedded folder: cannot fail
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Example returns the text of a shipped project.
func Example(name string) ([]byte, error) {
	b, err := examples.ReadFile("examples/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no shipped project %q", name)
	}
	return b, nil
}
