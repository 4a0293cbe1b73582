package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestHintsAreTrue: what is missing is named, and not what the step would need if it were there.
func TestHintsAreTrue(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := localrepo.Open(t.Context(), t.TempDir())
	if err == nil {
		t.Fatal("a repository was opened without git")
	}
	if got := app.Hint(err); !strings.Contains(got, "apt install git") {
		t.Errorf("%v: hint %q", err, got)
	}
	denied := &runtime.DeniedError{Socket: "/var/run/docker.sock", Group: "docker"}
	err = exiterr.New(workorder.ExitBox, fmt.Errorf("ask the engine: %w", denied), "start the Docker engine")
	if got := app.Hint(err); !strings.Contains(got, "usermod -aG docker") || app.ExitCode(err) != workorder.ExitBox {
		t.Errorf("%v: hint %q", err, got)
	}
}
