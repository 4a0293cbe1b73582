package artifact

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
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

func TestRead(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		metadata string
		wrong    int // lines
	}{
		"seed":                {`{"name":"a","backend":"jail","interpreter":"python3 -c","stdin_mode":"arg","timeout_seconds":30,"memory_mb":512,"description":"x"}`, 0},
		"least":               {`{"name":"a","backend":"jail"}`, 0},
		"type of interpreter": {`{"name":"a","interpreter_type":"python","description":null}`, 0},
		"more":                {`{"name":"a","backend":"jail","microvm":{"vcpus":2}}`, 0},
		"nothing":             {`{}`, 2},
		"unknown backend":     {`{"name":"a","backend":"microvm"}`, 1},
		"unknown mode":        {`{"name":"a","backend":"jail","stdin_mode":"x"}`, 1},
		"all":                 {`{"name":"a b","backend":"x","stdin_mode":"x","timeout_seconds":-1,"memory_mb":-1}`, 5},
		"too much":            {`{"name":"a","backend":"jail","timeout_seconds":1e12,"memory_mb":17592186044416}`, 2},
		"types":               {`{"name":"a b","backend":"jail","stdin_mode":1,"timeout_seconds":"x","memory_mb":-1}`, 4},
		"type of the name":    {`{"name":5,"backend":"jail"}`, 1},
		"types of both":       {`{"name":null,"backend":[],"interpreter_type":true}`, 3},
		"fractions":           {`{"name":"a","backend":"jail","memory_mb":0.5}`, 1},
		"types below":         {`{"name":"a","backend":"jail","sandbox_agent":{"image":1,"inherit_vars":"x","project_mount":"y"}}`, 3},
		"no JSON":             {`{`, 1},
		"a list":              {`[]`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, filepath.Join(dir, MetadataFile), row.metadata, 0o644)
			put(t, filepath.Join(dir, "bin", "run"), "#!/bin/sh\n", 0o755)
			p, err := Read(dir)
			got := 0
			if err != nil {
				got = len(strings.Split(err.Error(), "\n"))
			}
			if got != row.wrong {
				t.Errorf("%d: %v", got, err)
			}
			if err == nil && (p.Name != "a" || p.Program != filepath.Join(dir, "bin", "run")) {
				t.Errorf("%+v", p)
			}
		})
	}
	known := t.TempDir()
	put(t, filepath.Join(known, MetadataFile), `{"name":"a","Backend":"jail","packages":"y","sandbox_agent":{"image":"i","zone":1}}`, 0o644)
	if got, err := Unknown(known); err != nil || strings.Join(got, " ") != "packages sandbox_agent.zone" {
		t.Errorf("unknown: %q, %v", got, err)
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	pipe := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(pipe, MetadataFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(pipe); err == nil { // it would never end
		t.Error("a pipe was read")
	}
}

// How code reaches an interpreter that does not say so is what its last argument says.
func TestStdinMode(t *testing.T) {
	t.Parallel()
	for metadata, argument := range map[string]bool{
		`{"name":"a","backend":"jail","interpreter":"bash -s"}`:                        false,
		`{"name":"a","backend":"jail","interpreter":"python3 -c"}`:                     true,
		`{"name":"a","backend":"jail"}`:                                                false,
		`{"name":"a","backend":"jail","interpreter":"awk -f","stdin_mode":"arg"}`:      true,
		`{"name":"a","backend":"jail","interpreter":"python3 -c","stdin_mode":"pipe"}`: false,
	} {
		dir := t.TempDir()
		put(t, filepath.Join(dir, MetadataFile), metadata, 0o644)
		put(t, filepath.Join(dir, "bin", "run"), "", 0o755)
		if p, err := Read(dir); err != nil || p.CodeArgument != argument {
			t.Errorf("%s: %+v, %v", metadata, p, err)
		}
	}
}

func TestDefinition(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		text  string
		wrong int
	}{
		"least":           {"name: a\n", 0},
		"all":             {"{name: a, interpreter: node -e, stdin_mode: arg, backend: container, packages: [jq, g++, xy=1.0-1], timeout_seconds: 0.5, memory_mb: 64, description: x, inherit_vars: [A], project_mount: /p, backend_options: {}}", 0},
		"image":           {"{name: a, backend: container, image: 'r.example:5000/x:1'}", 0},
		"no name":         {"interpreter: bash\n", 1},
		"backend":         {"{name: a, backend: microvm}", 1},
		"limits":          {"{name: a, timeout_seconds: -1, memory_mb: -1}", 2},
		"package":         {"{name: a, packages: ['jq; rm -rf /', '-o', x-]}", 3},
		"variable":        {"{name: a, inherit_vars: ['A=1', '$(x)', sa_name]}", 3},
		"image of a jail": {"{name: a, image: x}", 1},
		"both":            {"{name: a, backend: container, image: x, packages: [jq]}", 1},
		"mount":           {"{name: a, project_mount: /usr/}", 1},
		"relative mount":  {"{name: a, project_mount: x}", 1},
		"unknown":         {"{name: a, x: 1, backend_options: {y: 1}}", 2},
		"types":           {"{name: a, memory_mb: much, backend: microvm}", 2},
		"words":           {"{name: a, interpreter: 'bash \"'}", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "d.yaml")
			put(t, file, row.text, 0o644)
			d, err := ReadDefinition(file)
			got := 0
			if err != nil {
				got = len(strings.Split(err.Error(), "\n"))
			}
			if got != row.wrong {
				t.Errorf("%d: %v", got, err)
			}
			if name == "least" && (d.Interpreter != "bash -s" || d.StdinMode != "pipe" || d.TimeoutSeconds != 30 || d.MemoryMB != 512 || d.Backend != "jail" || d.Own.ProjectMount != "/project") {
				t.Errorf("%+v", d)
			}
		})
	}
}

// Others may run an artifact, whatever the umask of who builds it.
func TestMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, map[string]string{runFile: "", MetadataFile: ""}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{".": 0o755, "bin": 0o755, runFile: 0o755, MetadataFile: 0o644} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}

// A folder with something else in it stays, and an artifact is replaced as a whole.
func TestReplace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "d.yaml")
	put(t, file, "{name: a, backend: box}", 0o644)
	d, err := ReadDefinition(file)
	if err != nil {
		t.Fatal(err)
	}
	b := Builder{State: t.TempDir()}
	other := t.TempDir()
	put(t, filepath.Join(other, "mine"), "x", 0o644)
	if err := b.Build(t.Context(), d, other); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	theirs := t.TempDir()
	put(t, filepath.Join(theirs, MetadataFile), `{"name":"a","backend":"jail"}`, 0o644)
	if err := b.Build(t.Context(), d, theirs); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	parent := t.TempDir()
	dir := filepath.Join(parent, "new", "a")
	for range 2 {
		if err := b.Build(t.Context(), d, dir); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Read(dir)
	if err != nil || p.Runtime != sandbox.RuntimeBox || p.Program != "" || p.Timeout != 30*time.Second {
		t.Errorf("%+v, %v", p, err)
	}
	if list, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
