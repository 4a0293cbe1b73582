package runtimetest

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

func TestFake(t *testing.T) {
	Conformance(t, NewFake(map[string]Program{"echo": Echo}), runtime.BoxSpec{
		Name: "suite", Image: "echo", Isolation: runtime.IsolationConfined, Labels: map[string]string{"suite": "fake"},
	})
}
