package runtimetest

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestFake(t *testing.T) {
	f := NewFake(map[string]Program{"echo": Echo, EchoProgram: Echo})
	f.Images = map[string][]byte{"echo": []byte("an archive")}
	Conformance(t, f, runtime.ContainerSpec{
		Name: "suite", Image: "echo", Isolation: workorder.IsolationConfined, Labels: map[string]string{"suite": "fake"},
	})
}
