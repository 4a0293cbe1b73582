package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"

	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
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

// SettingsDir is the configuration folder; "" where the environment names none.
func SettingsDir(getenv func(string) string) string {
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

// LoadSettings reads the settings by the environment. Without a file they are the defaults; a file that is wrong is an error,
// with all that is wrong.
func LoadSettings(getenv func(string) string) (Settings, error) {
	s := Settings{Security: Security{RequireSandbox: true}}
	dir := SettingsDir(getenv)
	s.File = filepath.Join(dir, "config.yaml")
	if dir == "" {
		return s, nil
	}
	b, err := yamlkeys.ReadFile(s.File)
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

// settingsKeys are those of the file.
var settingsKeys = &yamlkeys.Schema{Kind: yamlkeys.Object, Keys: []yamlkeys.Key{{
	Name: "security", Schema: &yamlkeys.Schema{Kind: yamlkeys.Object, Keys: []yamlkeys.Key{{
		Name: "require_sandbox", Schema: &yamlkeys.Schema{Kind: yamlkeys.Boolean},
	}}},
}}}

func (s *Settings) decode(b []byte) error {
	root, err := yamlkeys.Load(s.File, b, settingsKeys)
	if require := root.Get("security").Get("require_sandbox"); require != nil {
		s.Security.RequireSandbox = require.Bool()
	}
	return err
}
