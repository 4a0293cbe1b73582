package docker

import (
	"errors"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Messages of engines and runtimes that cannot hold a box as asked.
func TestRefusalsOfTheIsolation(t *testing.T) {
	t.Parallel()
	e := &api{}
	for _, said := range []string{
		"Error response from daemon: Unknown runtime specified no-such-runtime",
		"Error response from daemon: unknown or invalid runtime name: no-such-runtime",
		"OCI runtime create failed: runc create failed: unable to start container process: unable to apply caps: operation not permitted: unknown",
	} {
		if err := e.startError("start box", runtime.ContainerSpec{}, errors.New(said)); !errors.Is(err, runtime.ErrIsolation) {
			t.Errorf("%q is not taken for a refusal", said)
		}
	}
	if err := e.startError("start box", runtime.ContainerSpec{}, errors.New("no space left on device")); errors.Is(err, runtime.ErrIsolation) {
		t.Error("a full disk is taken for a refusal")
	}
}
