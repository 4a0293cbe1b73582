package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Root opens the prompt again: a process that the agent left running must not be able to replace it by a link
// or a pipe, and the agent has to be able to read it.
func TestPromptStaysOurs(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user than the agent")
	}
	user := &proc.Credential{UID: 65534, GID: 65534}
	path, remove, err := writePrompt("the task", user)
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	out, err := proc.Output(t.Context(), proc.Spec{
		Argv: []string{"/bin/sh", "-c", `for a in 'rm -f "$1"' 'mv "$1" "$1.x"' 'ln -sf /etc/passwd "$1"' 'chmod 600 "$1"' 'echo x >>"$1"' 'mkfifo "$2/x"' 'mv "$2" "$2.x"' 'chmod 777 "$2"'; do
sh -c "$a" sh "$1" "$2" && echo "could $a"; done 2>/dev/null; cat "$1"`, "sh", path, filepath.Dir(path)},
		User: user, Dir: "/", Env: []string{"PATH=" + os.Getenv("PATH")},
	})
	if err != nil || strings.TrimSpace(string(out)) != "the task" {
		t.Errorf("the agent's user: %q %v", out, err)
	}
}
