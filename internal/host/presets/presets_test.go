package presets

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
)

func put(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// good makes an artifact of somebody else's.
func good(t *testing.T, dir, name string) {
	t.Helper()
	put(t, filepath.Join(dir, "bin", "run"), "#!/bin/sh\n", 0o755)
	put(t, filepath.Join(dir, "metadata.json"), `{"name":"`+name+`","backend":"jail","timeout_seconds":30,"other":[1]}`, 0o644)
}

func names(all []code.Preset) string {
	var s []string
	for _, p := range all {
		s = append(s, p.Name)
	}
	return strings.Join(s, " ")
}

func find(t *testing.T, r *Registry, name string) code.Preset {
	t.Helper()
	for _, p := range r.Presets() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no %s", name)
	return code.Preset{}
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good(t, filepath.Join(dir, "art"), "inner")
	file := filepath.Join(dir, "presets.yaml")
	put(t, file, `
presets:
  python: {preset: python, timeout_seconds: 1.5, memory_mb: 64}
  a: &a {sandbox: art, timeout_seconds: 2}
  merged: {<<: *a, timeout_seconds: 3}
  b:
    interpreter: awk -e
    backend: container
    image: x/y:1
    network: full
    cpus: 0.5
    pids: 100
    env: {K: "${HOME}/$$x", N: 1, TOKEN: ghp_0123456789abcdefghijklmnop} # this file has no other place for it
    inherit_vars: [TOKEN]
    session: none
    project: .
  nix: {flake: "github:a/b", interpreter: python3 -c}
  ref: {sandbox: "github:a/b#c"}
  vm: {preset: shell, backend: microvm}
  gone: {sandbox: /no/such}
  unset: {preset: shell, env: {A: "${NOT_SET}", B: "${HOME}"}, description: "${NOT_SET}"}
  tight: {preset: shell, memory_mb: 10}
  few: {preset: shell, pids: 10, cpus: 0.005}
  jpy: {interpreter: [python3, "-"], session: jupyter, kernel: ir}
  listed: {preset: shell, network: restricted, allow: ["*.example.com", "db.example.com:5432"]}
  unlisted: {preset: shell, network: restricted}
  unrestricted: {preset: shell, network: full, allow: [example.com]}
`, 0o644)
	var warned []string
	r, err := Open(Options{File: file, Dir: filepath.Join(dir, "none"), Getenv: func(n string) string { return map[string]string{"HOME": "/h"}[n] }, Warn: func(s string) { warned = append(warned, s) }})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(r.Presets()); got != "a b jpy listed merged node python shell" {
		t.Error(got)
	}
	if e := find(t, r, "listed"); e.Network || strings.Join(e.Allow, " ") != "*.example.com db.example.com:5432" {
		t.Errorf("%+v", e)
	}
	if len(warned) != 10 || r.Problem("unlisted") == nil || r.Problem("unrestricted") == nil || r.Problem("unset") == nil || r.Problem("nix") == nil || r.Problem("tight") == nil || r.Problem("few") == nil || r.Problem("vm") == nil || r.Problem("gone") == nil || r.Problem("ref") == nil || r.Problem("a") != nil {
		t.Errorf("%q", warned)
	}
	if p := find(t, r, "python"); p.Timeout != 1500*time.Millisecond || p.MemoryBytes != 64<<20 || p.Driver != sandbox.DriverPython || p.Source != file {
		t.Errorf("%+v", p)
	}
	if p := find(t, r, "a"); p.Program != filepath.Join(dir, "art", "bin", "run") || p.Timeout != 2*time.Second || p.Driver != "" {
		t.Errorf("%+v", p)
	}
	p := find(t, r, "b")
	if strings.Join(p.Env, " ") != "K=/h/$x N=1 TOKEN=ghp_0123456789abcdefghijklmnop" || !p.Network || !p.CodeArgument || p.CPUs != 0.5 || p.PIDs != 100 || p.Inherit[0] != "TOKEN" || p.Project != dir || p.Runtime != sandbox.RuntimeContainer || p.Driver != "" {
		t.Errorf("%+v", p)
	}
	if p := find(t, r, "jpy"); p.Driver != sandbox.DriverJupyter || p.Kernel != "ir" {
		t.Errorf("%+v", p)
	}
}

// The key of the previous release is read, also beside the present one, which overrides it.
func TestOldKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "environments.yaml")
	put(t, file, "environments: {a: {preset: shell}, b: {preset: shell}}\npresets: {b: {preset: node}}\n", 0o644)
	r, err := Open(Options{File: file, Named: true, Getenv: func(string) string { return "" }})
	if err != nil || names(r.Presets()) != "a b node python shell" || find(t, r, "b").Driver != sandbox.DriverNode {
		t.Errorf("%v, %v", r.Presets(), err)
	}
}

// All that is wrong with a file is told, and nothing of it holds.
func TestBroken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "e.yaml")
	put(t, file, `
presets:
  a: {preset: python, sandbox: x}
  b: {}
  c: {preset: python, timeout_seconds: -1, network: some, unknown: 1}
  d: {preset: python, env: {X: "${NOT_SET}", "1": a}, session: cobol}
  e: {preset: shell}
other: 1
`, 0o644)
	r, err := Open(Options{File: file, Getenv: func(string) string { return "" }})
	if err == nil || len(strings.Split(err.Error(), "\n")) != 8 {
		t.Error(err)
	}
	if got := names(r.Presets()); got != "node python shell" {
		t.Error(got)
	}
	if _, err := Open(Options{File: filepath.Join(t.TempDir(), "none"), Named: true}); err == nil {
		t.Error("a file that was named is not missed")
	}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	good(t, filepath.Join(elsewhere, "x"), "linked")
	if err := os.Symlink(filepath.Join(elsewhere, "x"), filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	good(t, filepath.Join(dir, "bad-mode"), "a")
	if err := os.Chmod(filepath.Join(dir, "bad-mode", "bin", "run"), 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "bad-run", "metadata.json"), `{"name":"b","backend":"jail"}`, 0o644)
	put(t, filepath.Join(dir, "bad-json", "metadata.json"), `{`, 0o644)
	good(t, filepath.Join(dir, "bad-backend"), "c")
	put(t, filepath.Join(dir, "bad-backend", "metadata.json"), `{"name":"c","backend":"x"}`, 0o644)
	put(t, filepath.Join(dir, "a-file"), "", 0o644)
	all, problems := Scan(dir)
	if names(all) != "linked" || len(problems) != 4 {
		t.Errorf("%s, %v", names(all), problems)
	}
}

// What has changed is read anew, a broken file changes nothing, and what is equal is no change.
func TestRefresh(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "e.yaml"), filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := Open(Options{File: file, Dir: folder, Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Hour)
	refresh := func(want string, wantChanged, wantErr bool) {
		t.Helper()
		at = at.Add(time.Second) // file systems count in less than what lies between two steps here
		for _, f := range []string{file, folder} {
			if _, err := os.Stat(f); err == nil {
				if err := os.Chtimes(f, at, at); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.looked = time.Time{}
		changed, err := r.Refresh()
		if got := names(r.Presets()); got != want || changed != wantChanged || (err != nil) != wantErr {
			t.Errorf("%s, %v, %v", got, changed, err)
		}
		r.looked = time.Time{}
		if changed, err := r.Refresh(); changed || err != nil {
			t.Errorf("again: %v, %v", changed, err)
		}
	}
	put(t, file, "presets: {x: {preset: shell}}\n", 0o644)
	refresh("node python shell x", true, false)
	put(t, file, "presets: {x: {preset: shell}", 0o644)
	refresh("node python shell x", false, true)
	good(t, filepath.Join(folder, "g"), "g")
	refresh("node python shell x", false, true)
	put(t, file, "presets: {y: {preset: shell}}\n", 0o644)
	refresh("g node python shell y", true, false)
	refresh("g node python shell y", false, false)
	put(t, file+".new", "presets: {z: {preset: shell}}\n", 0o644)
	// As large and as old, as all files of some stores are.
	if err := errors.Join(os.Chtimes(file+".new", at, at), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
	at = at.Add(-time.Second)
	refresh("g node python shell z", true, false)
	put(t, file, "presets: {y: {preset: shell}}\n", 0o644)
	refresh("g node python shell y", true, false)
	put(t, filepath.Join(folder, "g", "metadata.json"), `{"name":"other","backend":"jail"}`, 0o644)
	refresh("node other python shell y", true, false)
	if err := os.RemoveAll(filepath.Join(folder, "g")); err != nil {
		t.Fatal(err)
	}
	refresh("node python shell y", true, false)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refresh("node python shell", true, false)
}
