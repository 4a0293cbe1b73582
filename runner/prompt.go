package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// writePrompt writes the prompt to a file that only user can read. Root keeps the directory and the file: root opens
// the file again as the agent's standard input, and a file that the agent could replace by a link would be opened with
// root's rights.
func writePrompt(text string, user *proc.Credential) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "sandbox-agent-prompt-")
	if err != nil {
		return "", nil, fmt.Errorf("create prompt directory: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "prompt")
	if err = os.WriteFile(path, []byte(text), 0o440); err == nil && user != nil {
		err = errors.Join(
			os.Chown(path, -1, int(user.GID)),
			os.Chmod(path, 0o440), // whatever the umask is
			os.Chmod(dir, 0o711),
		)
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("write prompt: %w", err)
	}
	return path, remove, nil
}
