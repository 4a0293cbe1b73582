// Package yamlkeys decodes and checks YAML files with known keys, and derives their JSON Schema and reference from one table.
package yamlkeys

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"
)

// ReadFile reads at most MaxFile bytes, and one more of a larger file, which Document rejects.
func ReadFile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe without a writer is empty
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFile+1))
}

// Load decodes a file; an empty one has no keys. The value is complete only without an error, which joins one error per
// problem.
func Load(name string, content []byte, root *Schema) (*Value, error) {
	d := New(name, string(content), root)
	v, empty := d.Document(content)
	if empty {
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
		v = d.Decode(root, n, n, "")
	}
	var errs []error
	for _, p := range d.Found() {
		s := p.String()
		if p.Hint != "" {
			s += ": " + p.Hint
		}
		errs = append(errs, errors.New(s))
	}
	return v, errors.Join(errs...)
}
