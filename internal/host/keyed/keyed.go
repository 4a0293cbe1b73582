// Package keyed reads the user's own YAML files, whose mappings have known keys: all that is wrong with one is found, with its place.
package keyed

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
)

// maxFile bounds a file, in bytes: it is written by hand.
const maxFile = 1 << 20

// Keys are the functions that read the value of each known key.
type Keys map[string]func(*yaml.Node)

// Reader collects what is wrong with a file.
type Reader struct {
	file string
	errs []error
}

// Open reads a file, of at most 1 MiB.
func Open(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe that nobody writes to is empty
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", file, maxFile)
	}
	return b, err
}

// Read reads one document; read is called with its value, and not at all of an empty one. The error is all that is wrong.
func Read(file string, b []byte, read func(*Reader, *yaml.Node)) error {
	d := &Reader{file: file}
	var doc, more yaml.Node
	all := yaml.NewDecoder(bytes.NewReader(b))
	err := all.Decode(&doc)
	if errors.Is(err, io.EOF) { // nothing is set
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	read(d, doc.Content[0])
	if err := all.Decode(&more); err == nil {
		d.Wrong(&more, "one document is enough: nothing is read from this one")
	} else if !errors.Is(err, io.EOF) {
		d.errs = append(d.errs, fmt.Errorf("%s: %w", file, err))
	}
	return errors.Join(d.errs...)
}

// Wrong notes what is wrong at a place.
func (d *Reader) Wrong(n *yaml.Node, format string, args ...any) {
	p := diag.Problem{File: d.file, Line: n.Line, Col: n.Column, Code: "setting", Message: fmt.Sprintf(format, args...)}
	d.errs = append(d.errs, errors.New(p.String()))
}

// OK reports whether nothing is wrong so far.
func (d *Reader) OK() bool { return len(d.errs) == 0 }

// Mapping calls the function of each key; above is the name of the mapping with a dot behind it, for errors.
func (d *Reader) Mapping(n *yaml.Node, above string, keys Keys) {
	d.Each(n, above, func(key, value *yaml.Node) {
		if read, ok := keys[key.Value]; ok {
			read(value)
		} else {
			d.Wrong(key, "there is no setting %q", above+key.Value)
		}
	})
}

// Each calls a function for each key of a mapping, whatever its name.
func (d *Reader) Each(n *yaml.Node, above string, each func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		if n.Tag != "!!null" {
			d.Wrong(n, "%s: use settings, as NAME: VALUE", cmp.Or(strings.TrimSuffix(above, "."), "the file"))
		}
		return
	}
	set := map[string]int{} // by name, in which line
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if line, again := set[key.Value]; again {
			d.Wrong(key, "%q is set in line %d already", above+key.Value, line)
			continue
		}
		set[key.Value] = key.Line
		each(key, meant(n.Content[i+1]))
	}
}

// meant is the value that an alias stands for.
func meant(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// String returns what reads a text into to.
func (d *Reader) String(name string, to *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || strings.TrimSpace(n.Value) == "" {
			d.Wrong(n, "%s is a text", name)
			return
		}
		*to = n.Value
	}
}

// mostNumber bounds each number: megabytes and seconds of that many can be reckoned with, and are more than there is.
const mostNumber = 1_000_000_000

// Number returns what reads a number of at least least into to; one of an int64 is whole.
func Number[T int64 | float64](d *Reader, name string, least T, to *T) func(*yaml.Node) {
	kind := "a number"
	if _, whole := any(to).(*int64); whole {
		kind = "a whole number"
	}
	return func(n *yaml.Node) {
		var v float64
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" || n.Decode(&v) != nil || v != v || v < float64(least) || v > mostNumber || float64(T(v)) != v {
			d.Wrong(n, "%s is %s from %v to %d", name, kind, least, mostNumber)
			return
		}
		*to = T(v)
	}
}

// Bool returns what reads true or false into to.
func (d *Reader) Bool(name string, to *bool) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n.Tag != "!!bool" || n.Decode(to) != nil {
			d.Wrong(n, "%s is true or false", name)
		}
	}
}

// Strings returns what reads a list of texts into to.
func (d *Reader) Strings(name string, to *[]string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			d.Wrong(n, "%s is a list of texts", name)
			return
		}
		for _, item := range n.Content {
			var s string
			d.String("each of "+name, &s)(meant(item))
			*to = append(*to, s)
		}
	}
}
