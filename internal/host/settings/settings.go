// Package settings reads what the user has set for this machine, in one file of the configuration folder.
package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
)

// maxFile bounds the file, which is written by hand.
const maxFile = 1 << 20

// Settings are the user's, or the defaults.
type Settings struct {
	// File is where they are, or would be.
	File     string
	Security Security
}

// Security is what of the machine's safety the user decides.
type Security struct {
	// RequireSandbox refuses sandboxes that isolate nothing. It is the default.
	RequireSandbox bool
}

// Load reads the settings by the environment. Without a file they are the defaults; a file that is wrong is an error, with all that is wrong.
func Load(getenv func(string) string) (Settings, error) {
	s := Settings{Security: Security{RequireSandbox: true}}
	dir := getenv("XDG_CONFIG_HOME")
	switch home := getenv("HOME"); {
	case filepath.IsAbs(dir):
	case home == "":
		s.File = "config.yaml"
		return s, nil
	case runtime.GOOS == "darwin":
		dir = filepath.Join(home, "Library", "Application Support")
	default:
		dir = filepath.Join(home, ".config")
	}
	s.File = filepath.Join(dir, "sandbox-agent", "config.yaml")
	f, err := os.Open(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read settings: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", s.File, maxFile)
	}
	if err != nil {
		return s, fmt.Errorf("read settings: %w", err)
	}
	return s, s.decode(b)
}

func (s *Settings) decode(b []byte) error {
	var doc, more yaml.Node
	all := yaml.NewDecoder(bytes.NewReader(b))
	err := all.Decode(&doc)
	if errors.Is(err, io.EOF) { // nothing is set
		return nil
	}
	if err != nil {
		return fmt.Errorf("read settings: %s: %w", s.File, err)
	}
	d := decoder{file: s.File}
	d.mapping(doc.Content[0], "", map[string]func(*yaml.Node){
		"security": func(n *yaml.Node) {
			d.mapping(n, "security.", map[string]func(*yaml.Node){
				"require_sandbox": func(n *yaml.Node) {
					if n.Tag != "!!bool" || n.Decode(&s.Security.RequireSandbox) != nil {
						d.wrong(n, "security.require_sandbox is true or false")
					}
				},
			})
		},
	})
	if err := all.Decode(&more); err == nil {
		d.wrong(&more, "one document is enough: nothing is read from this one")
	} else if !errors.Is(err, io.EOF) {
		d.errs = append(d.errs, fmt.Errorf("read settings: %s: %w", s.File, err))
	}
	return errors.Join(d.errs...)
}

// decoder collects what is wrong with a file.
type decoder struct {
	file string
	errs []error
}

func (d *decoder) wrong(n *yaml.Node, format string, args ...any) {
	p := diag.Problem{File: d.file, Line: n.Line, Col: n.Column, Code: "setting", Message: fmt.Sprintf(format, args...)}
	d.errs = append(d.errs, errors.New(p.String()))
}

// mapping calls the function of each key.
func (d *decoder) mapping(n *yaml.Node, above string, keys map[string]func(*yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		if n.Tag != "!!null" {
			d.wrong(n, "%shere come settings, as NAME: VALUE", above)
		}
		return
	}
	set := map[string]int{} // by name, in which line
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		f, ok := keys[key.Value]
		line, again := set[key.Value]
		switch {
		case !ok:
			d.wrong(key, "there is no setting %q", above+key.Value)
		case again:
			d.wrong(key, "%q is set in line %d already", above+key.Value, line)
		default:
			set[key.Value] = key.Line
			f(n.Content[i+1])
		}
	}
}
