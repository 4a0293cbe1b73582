package app

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Without isolation nothing runs, unless the flag or the setting allows it; then there is one warning.
func TestFallback(t *testing.T) {
	programs := t.TempDir() // has no bubblewrap
	for _, name := range []string{"sh", "bash", "cat"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(path, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs)
	const none, engine = workorder.ExitOK, workorder.ExitBox
	for name, row := range map[string]struct {
		settings, flag, runtime string
		spec                    sandbox.Spec
		up, run                 int // of an error
	}{
		"nothing said":          {up: engine, run: engine},
		"flag":                  {flag: "host", up: none, run: none},
		"settings":              {settings: "fallback: host", up: none, run: none},
		"flag of another value": {flag: "yes", up: workorder.ExitUsage, run: none},
		"a runtime named":       {flag: "host", runtime: "container", up: workorder.ExitUsage, run: none},
		"setting, and a name":   {settings: "fallback: host", runtime: "jail", up: workorder.ExitInvalid, run: none},
		"a sandbox required":    {settings: "require_sandbox: true", flag: "host", up: workorder.ExitInvalid, run: none},
		"an image":              {flag: "host", spec: sandbox.Spec{Image: "x"}, up: engine, run: none},
		"no network":            {flag: "host", spec: sandbox.Spec{Network: sandbox.NetworkNone}, up: workorder.ExitInvalid, run: none},
		"contradiction":         {settings: "require_sandbox: true, fallback: host", up: workorder.ExitInvalid, run: workorder.ExitInvalid},
	} {
		dir, warnings := t.TempDir(), 0
		file := filepath.Join(dir, "sandbox-agent", "config.yaml")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("security: {"+row.settings+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		vars := map[string]string{
			"XDG_CONFIG_HOME": dir, "HOME": dir, "SANDBOX_AGENT_STATE_DIR": t.TempDir(),
			"DOCKER_HOST": "unix://" + filepath.Join(dir, "none.sock"),
		}
		e := &Env{
			OpenEngine: func() (*Backend, error) { return nil, sandbox.ErrUnavailable },
			Getenv:     func(name string) string { return vars[name] }, OpenSandboxes: sandbox.NewManager,
			Note: func(line string) {
				if strings.HasPrefix(line, "warning: ") {
					warnings++
				}
			},
		}
		row.spec.Name = "x"
		u, err := e.Sandboxes().Up(t.Context(), UpRequest{Spec: row.spec, Runtime: row.runtime, Fallback: row.flag})
		if exiterr.Code(err) != row.up {
			t.Errorf("%s: up: %v", name, err)
		}
		if row.up == none && (err != nil || u.Spec.Runtime != sandbox.RuntimeHost || warnings != 1) {
			t.Errorf("%s: up: %s, %d warnings, %v", name, u.Spec.Runtime, warnings, err)
		}
		if err == nil {
			m, err := e.Manager(false)
			if err != nil {
				t.Fatal(err)
			}
			sb, err := m.Get(t.Context(), "x")
			if err == nil {
				err = sb.Remove(t.Context(), sandbox.RemoveOptions{})
			}
			if err != nil || m.Close() != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		warnings = 0
		r, done, err := e.Code().Runner(nil, row.flag)
		if err != nil {
			t.Fatal(err)
		}
		for _, session := range []string{"", "s"} {
			res, err := r.Run(t.Context(), code.Request{Preset: "shell", Code: "cat <<<$HOME", Session: session})
			switch {
			case row.flag != "" || row.settings == "fallback: host":
				if err != nil || res.Runtime != sandbox.RuntimeHost || res.ExitCode != 0 || strings.TrimSpace(res.Stdout) == sandbox.CloneDir {
					t.Errorf("%s: run: %+v, %v", name, res, err)
				}
			case exiterr.Code(CodeError(err)) != row.run:
				t.Errorf("%s: run: %v", name, err)
			}
		}
		if err := r.EndSession(t.Context(), "s"); err == nil && warnings != 1 {
			t.Errorf("%s: run: %d warnings", name, warnings)
		}
		if err := done(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
