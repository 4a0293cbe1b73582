package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
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

// A server builds the listed artifacts that are missing or older than their definitions; a mistake is only a warning.
// Docs: docs/presets.md
func TestBuildListed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list := []string{put("good.yaml", "name: good\nbackend: jail\n"), put("bad.yaml", "name: [\n"), filepath.Join(dir, "none.yaml")}
	env := map[string]string{
		PresetsDir: filepath.Join(dir, "presets"), artifactsVariable: strings.Join(list, string(filepath.ListSeparator)),
		"SANDBOX_AGENT_STATE_DIR": filepath.Join(dir, "state"),
	}
	c := (&Env{Getenv: func(name string) string { return env[name] }}).Code()
	var first os.FileInfo
	for range 2 {
		var warned []string
		if built := c.BuildListed(t.Context(), func(s string) { warned = append(warned, s) }); built != (first == nil) {
			t.Errorf("built: %t", built)
		}
		made, err := os.Stat(filepath.Join(dir, "presets", "good"))
		if err != nil || len(warned) != 2 {
			t.Fatalf("%v, %q", err, warned)
		}
		if first != nil && !os.SameFile(first, made) {
			t.Error("it was built again")
		}
		first = made
	}
}

// The artifacts that a server builds are known when the build ends, and not at the next look at the files.
func TestBuiltIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		definition := filepath.Join(dir, "made.yaml")
		write(t, definition, "name: made\nbackend: jail\n")
		env := map[string]string{
			PresetsDir: filepath.Join(dir, "presets"), artifactsVariable: definition, "SANDBOX_AGENT_STATE_DIR": filepath.Join(dir, "state"),
		}
		c := (&Env{Getenv: func(name string) string { return env[name] }}).Code()
		s := c.Served(slog.New(slog.DiscardHandler))
		begun := time.Now()
		defer s.Build(t.Context(), c)()
		changed := make(chan struct{}, 1)
		defer s.KeepUp(t.Context(), nil, func() { changed <- struct{}{} })()
		<-changed
		if !slices.ContainsFunc(s.Presets(), func(p code.Preset) bool { return p.Name == "made" }) || time.Since(begun) > 0 {
			t.Errorf("after %s: %+v", time.Since(begun), s.Presets())
		}
	})
}

func TestProjectVariables(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PROJECT_DIR": "/p"}
	c := (&Env{Getenv: func(name string) string { return env[name] }}).Code()
	if o, err := c.Options(); err != nil || o.Project != "/p" {
		t.Errorf("%q, %v", o.Project, err)
	}
	env[ProjectDir] = "/q"
	if o, err := c.Options(); err != nil || o.Project != "/q" {
		t.Errorf("%q, %v", o.Project, err)
	}
}
