package dockerd

import (
	"fmt"
	"os"
	"path/filepath"
)

// withheld replaces git for the engine: BuildKit runs git as root on any repository that a build names, inside a stream
// that the guard does not read.
const withheld = `#!/bin/sh
echo "sandbox-agent guard: rule build-remote: the engine does not fetch repositories:" \
	"fetch it in the sandbox (git) and give the local copy" >&2
exit 128
`

// tools returns a root-only directory at the head of the engine's path.
func (p plan) tools() string { return filepath.Join(p.runDir, "bin") }

func (p plan) withhold() error {
	if err := os.MkdirAll(p.tools(), 0o755); err != nil {
		return fmt.Errorf("hide git from the engine: %w", err)
	}
	if err := os.WriteFile(filepath.Join(p.tools(), "git"), []byte(withheld), 0o755); err != nil {
		return fmt.Errorf("hide git from the engine: %w", err)
	}
	return nil
}
