package runner

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/runner/harness"
)

// versionTime bounds the query of a version; a large Node program takes seconds on a slow disk.
const versionTime = time.Minute

// checkVersion rejects an agent in another version than the project requires. It runs after setup, which may install the agent.
func (c *Config) checkVersion(ctx context.Context, h harness.Harness) error {
	want := c.Order.Harness.Version
	argv := agentkind.Of(h.Name()).Version
	if want == "" || len(argv) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, versionTime, fmt.Errorf("no answer in %s", versionTime))
	defer cancel()
	out, err := proc.Output(ctx, proc.Spec{Argv: argv, Dir: c.Workspace, Env: c.env(), User: c.User})
	if err != nil {
		return fmt.Errorf("harness %s: read its version, because the project requires %s (harness.version): %w", h.Name(), want, err)
	}
	have := "unknown"
	if words := strings.Fields(string(out)); len(words) > 0 {
		have = words[0]
	}
	if have != want {
		return fmt.Errorf("harness %s: the project requires version %s (harness.version), this sandbox has %s: "+
			"change harness.version, use an image that has %s, or let a setup command install it", h.Name(), want, text.Cut(have, 100), want)
	}
	return nil
}
