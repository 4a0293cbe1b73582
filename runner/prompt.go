package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// writePrompt puts the prompt, byte for byte, into a file that only user can
// read, in a folder of its own outside the workspace. The folder is given to the user
// last: until then nobody but us can put anything in the file's place.
func writePrompt(text string, user *proc.Credential) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "sandbox-agent-prompt-")
	if err != nil {
		return "", nil, fmt.Errorf("create prompt folder: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "prompt")
	err = os.WriteFile(path, []byte(text), 0o400)
	if err == nil && user != nil {
		err = errors.Join(
			os.Chown(path, int(user.UID), int(user.GID)),
			os.Chown(dir, int(user.UID), int(user.GID)),
		)
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("write prompt: %w", err)
	}
	return path, remove, nil
}
