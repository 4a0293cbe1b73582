package app

import (
	"os"
	"path/filepath"
	"testing"
)

// Variables, file and directory with the names of the previous release are used if the present ones are missing.
func TestWherePresetsAre(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	dir := filepath.Join(config, "sandbox-agent")
	env := map[string]string{"XDG_CONFIG_HOME": config}
	c := (&Env{Getenv: func(name string) string { return env[name] }}).Code()
	check := func(file, artifacts string, named bool) {
		t.Helper()
		if o := c.presetOptions(); o.File != file || o.Dir != artifacts || o.Named != named {
			t.Errorf("%s, %s, %v; want %s, %s, %v", o.File, o.Dir, o.Named, file, artifacts, named)
		}
	}
	put := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	check(filepath.Join(dir, "presets.yaml"), filepath.Join(dir, "presets"), false)
	put("environments.yaml")
	put("environments")
	check(filepath.Join(dir, "environments.yaml"), filepath.Join(dir, "environments"), false)
	put("presets.yaml")
	put("presets")
	check(filepath.Join(dir, "presets.yaml"), filepath.Join(dir, "presets"), false)
	env["SANDBOX_AGENT_ENVIRONMENTS"], env["SANDBOX_AGENT_ENVIRONMENTS_DIR"] = "/old.yaml", "/old"
	check("/old.yaml", "/old", true)
	env[PresetsFile], env[PresetsDir] = "/new.yaml", "/new"
	check("/new.yaml", "/new", true)
}
