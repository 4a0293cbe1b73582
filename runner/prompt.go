package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// writePrompt puts the prompt, byte for byte, into a file that only user can
// read, in a folder of its own outside the workspace. Folder and file stay ours: we open the file
// again as the agent's standard input, and what the agent's user could put in its place would be opened with our
// rights (it was shown with a link to our own memory).
func writePrompt(text string, user *proc.Credential) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "sandbox-agent-prompt-")
	if err != nil {
		return "", nil, fmt.Errorf("create prompt folder: %w", err)
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
