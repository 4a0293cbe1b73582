// Package settings reads what the user has set for this machine, in one file of the configuration folder.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/host/keyed"
)

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

// Dir is the configuration folder; "" where the environment names none.
func Dir(getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	switch home := getenv("HOME"); {
	case filepath.IsAbs(dir):
	case home == "":
		return ""
	case runtime.GOOS == "darwin":
		dir = filepath.Join(home, "Library", "Application Support")
	default:
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "sandbox-agent")
}

// Load reads the settings by the environment. Without a file they are the defaults; a file that is wrong is an error, with all that is wrong.
func Load(getenv func(string) string) (Settings, error) {
	s := Settings{Security: Security{RequireSandbox: true}}
	dir := Dir(getenv)
	s.File = filepath.Join(dir, "config.yaml")
	if dir == "" {
		return s, nil
	}
	b, err := keyed.Open(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = s.decode(b)
	}
	if err != nil {
		return s, fmt.Errorf("read settings: %w", err)
	}
	return s, nil
}

func (s *Settings) decode(b []byte) error {
	return keyed.Read(s.File, b, func(d *keyed.Reader, n *yaml.Node) {
		d.Mapping(n, "", keyed.Keys{
			"security": func(n *yaml.Node) {
				d.Mapping(n, "security.", keyed.Keys{"require_sandbox": d.Bool("security.require_sandbox", &s.Security.RequireSandbox)})
			},
		})
	})
}
