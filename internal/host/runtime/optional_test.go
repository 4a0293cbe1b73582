package runtime_test

import (
	"errors"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

func TestNoCopier(t *testing.T) {
	t.Parallel()
	c := runtime.CopierOf(nil)
	if _, err := c.CopyOut(t.Context(), "id", "/out"); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("out: %v", err)
	}
	if err := c.CopyIn(t.Context(), "id", "/", nil); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("in: %v", err)
	}
}
