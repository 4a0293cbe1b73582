package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Settings are the user's settings, with defaults.
type Settings struct {
	File     string // its path; it may be missing
	Security Security
	Author   string // who commits in sandboxes and tasks, as Name <email>; "" means git's own setting
	Limits   Limits
}

// Limits are the limits of this machine.
type Limits struct {
	Sandboxes int           // tasks, standbys and sandboxes that run at the same time; 0 means no limit
	Wait      time.Duration // how long one more waits; 0 means that it is refused
}

// Security are the settings of isolation.
type Security struct {
	RequireSandbox  bool // refuses sandboxes without isolation; the default
	SandboxRequired bool // the file says so
	FallbackHost    bool // allows sandboxes without isolation where none is available
}

// SettingsDir is the configuration directory, or "" without XDG_CONFIG_HOME and HOME.
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

// LoadSettings reads the settings, or the defaults if there is no file. The error lists all mistakes.
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

const maxSandboxes = 10000

// FallbackHost is the only value of `fallback`.
const FallbackHost = "host"

var settingsKeys = &yamlkeys.Schema{Kind: yamlkeys.Object, Keys: []yamlkeys.Key{{
	Name: "author", Schema: &yamlkeys.Schema{Kind: yamlkeys.Text, Check: checkAuthor},
}, {
	Name: "limits", Schema: &yamlkeys.Schema{Kind: yamlkeys.Object, Keys: []yamlkeys.Key{
		{Name: "sandboxes", Schema: &yamlkeys.Schema{Kind: yamlkeys.Integer, Max: maxSandboxes}},
		{Name: "wait", Schema: &yamlkeys.Schema{Kind: yamlkeys.Duration}},
	}},
}, {
	Name: "security", Schema: &yamlkeys.Schema{Kind: yamlkeys.Object, Check: checkSecurity, Keys: []yamlkeys.Key{
		{Name: "require_sandbox", Schema: &yamlkeys.Schema{Kind: yamlkeys.Boolean}},
		{Name: "fallback", Schema: &yamlkeys.Schema{Kind: yamlkeys.Text, Enum: []string{FallbackHost}}},
	}},
}}}

func checkAuthor(d *yamlkeys.Decoder, v *yamlkeys.Value) {
	if _, err := workorder.ParseIdentity(v.Text); err != nil {
		d.Report(v.Node, yamlkeys.CodeValue, "write author: Ann <ann@example.com>", "%v", err)
	}
}

func checkSecurity(d *yamlkeys.Decoder, v *yamlkeys.Value) {
	if to := v.Get("fallback"); to != nil && v.Get("require_sandbox").Bool() {
		d.Report(to.Node, yamlkeys.CodeValue, "keep one of the two", "fallback %s contradicts require_sandbox: true", FallbackHost)
	}
}

func (s *Settings) decode(b []byte) error {
	root, err := yamlkeys.Load(s.File, b, settingsKeys)
	security := root.Get("security")
	if require := security.Get("require_sandbox"); require != nil {
		s.Security.RequireSandbox, s.Security.SandboxRequired = require.Bool(), require.Bool()
	}
	limits := root.Get("limits")
	s.Limits = Limits{int(limits.Get("sandboxes").Number()), time.Duration(limits.Get("wait").Number() * float64(time.Second))}
	s.Author = root.Get("author").Str()
	s.Security.FallbackHost = security.Get("fallback").Str() == FallbackHost
	return err
}
