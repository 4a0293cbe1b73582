package dockerd

import (
	"fmt"
	"os"
	"path/filepath"
)

// withheld is in the place of git for the engine. BuildKit runs git as root on whatever repository a build names: as its
// context, as a named one, in a Dockerfile's ADD, or in what a frontend asks for. The request for it lies inside of a
// stream that the guard does not read, so that root's git is kept away where it would be found.
const withheld = `#!/bin/sh
echo "sandbox-agent guard: rule build-remote: the engine does not fetch repositories: fetch it in the sandbox (git) and give the local copy" >&2
exit 128
`

// tools is a folder of root's at the head of the engine's path.
func (p plan) tools() string { return filepath.Join(p.runDir, "bin") }

// withhold makes the folder.
func (p plan) withhold() error {
	if err := os.MkdirAll(p.tools(), 0o755); err != nil {
		return fmt.Errorf("keep git from the engine: %w", err)
	}
	if err := os.WriteFile(filepath.Join(p.tools(), "git"), []byte(withheld), 0o755); err != nil { //nolint:gosec // it is a program
		return fmt.Errorf("keep git from the engine: %w", err)
	}
	return nil
}
