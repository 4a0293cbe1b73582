package sandboxcmd

import (
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// A container that nobody has named an image for has the one of commands that name no sandbox: only the engine is missing here.
func TestUpWithoutAnImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gittest.Git(t, "", "init", "-q", dir)
	vars := map[string]string{"HOME": dir, "SANDBOX_AGENT_STATE_DIR": dir, "DOCKER_HOST": "unix://" + filepath.Join(dir, "none.sock"), app.ImageVariable: "mine"}
	a := cmdutil.New(cmdutil.IO{Stdout: io.Discard, Stderr: io.Discard}, app.Env{Getenv: func(name string) string { return vars[name] }, OpenSandboxes: sandbox.NewManager})
	for name, o := range map[string]*upOptions{"clone": {repo: dir}, "worktree": {spec: sandbox.Spec{Worktree: dir}}, "workspace": {workspaces: []string{dir}}, "nothing": {}} {
		o.runtime = string(sandbox.RuntimeContainer)
		if err := o.do(t.Context(), a, "dev"); errors.Is(err, sandbox.ErrInvalidSpec) || !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
