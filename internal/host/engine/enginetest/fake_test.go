package enginetest

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
)

func TestFake(t *testing.T) {
	Conformance(t, NewFake(map[string]Program{"echo": Echo}), engine.BoxSpec{
		Name: "suite", Image: "echo", Isolation: engine.IsolationConfined, Labels: map[string]string{"suite": "fake"},
	})
}
