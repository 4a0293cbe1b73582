package projects

import (
	"embed"
	"fmt"
)

// The shipped projects are part of the program, so that they work anywhere.
//
//go:embed examples/*.yaml
var examples embed.FS

// Example returns the text of a built-in project; the error is fs.ErrNotExist for another name.
func Example(name string) ([]byte, error) {
	b, err := examples.ReadFile("examples/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no shipped project %q", name)
	}
	return b, nil
}
