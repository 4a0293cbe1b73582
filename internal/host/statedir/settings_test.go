package statedir

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		content string
		require bool
		wrong   bool
	}{
		"fallback":          {"security: {fallback: host}\n", true, false},
		"another fallback":  {"security: {fallback: jail}\n", true, true},
		"a contradiction":   {"security: {fallback: host, require_sandbox: true}\n", true, true},
		"limits of nothing": {"limits: {sandboxes: 0}\n", true, true},
		"limits of a text":  {"limits: {sandboxes: 3, wait: soon}\n", true, true},
		"nothing":           {"", true, false},
		"a comment":         {"# x\n", true, false},
		"allowed":           {"security: {require_sandbox: false}\n", false, false},
		"said":              {"security:\n  require_sandbox: true\n", true, false},
		"no settings in it": {"security:\n", true, false},
		"an unknown one":    {"security: {require_sandbox: false, x: 1}\n", false, true},
		"unknown":           {"secrity: {}\n", true, true},
		"a text":            {"security: {require_sandbox: \"false\"}\n", true, true},
		"a number":          {"security: {require_sandbox: 0}\n", true, true},
		"a list":            {"- x\n", true, true},
		"no YAML":           {"{", true, true},
		"twice":             {"security: {require_sandbox: true}\nsecurity: {require_sandbox: false}\n", true, true},
		"twice in one":      {"security: {require_sandbox: true, require_sandbox: false}\n", true, true},
		"two documents":     {"security: {require_sandbox: true}\n---\nsecurity: {require_sandbox: false}\n", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "sandbox-agent", "config.yaml")
			if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(row.content), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := LoadSettings(func(name string) string { return map[string]string{"XDG_CONFIG_HOME": dir}[name] })
			if (err != nil) != row.wrong || s.Security.RequireSandbox != row.require || s.Security.FallbackHost != (name == "fallback") && err == nil || s.File != file {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	var s Settings
	if err := s.decode([]byte("limits: {sandboxes: 3, wait: 2m}\n")); err != nil || s.Limits != (Limits{3, 2 * time.Minute}) {
		t.Errorf("%+v, %v", s.Limits, err)
	}
}

func TestNoFile(t *testing.T) {
	t.Parallel()
	for _, home := range []string{"", t.TempDir()} {
		s, err := LoadSettings(func(name string) string { return map[string]string{"HOME": home}[name] })
		if err != nil || !s.Security.RequireSandbox || s.File == "" {
			t.Errorf("%+v, %v", s, err)
		}
	}
}
