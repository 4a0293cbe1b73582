// Package keyed reads the user's own YAML files, whose mappings have known keys: all that is wrong with one is found, with its place.
package keyed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

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
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe to which nobody writes is not waited for
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
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		if n.Tag != "!!null" {
			d.Wrong(n, "%shere come settings, as NAME: VALUE", above)
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
		each(key, n.Content[i+1])
	}
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

// Number returns what reads a number of at least least into to.
func Number[T int64 | float64](d *Reader, name string, least T, to *T) func(*yaml.Node) {
	return func(n *yaml.Node) {
		var v T
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" || n.Decode(&v) != nil || v < least || v != v {
			d.Wrong(n, "%s is a number, at least %v", name, least)
			return
		}
		*to = v
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
			d.String("each of "+name, &s)(item)
			*to = append(*to, s)
		}
	}
}
