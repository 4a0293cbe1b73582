//go:build e2e

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestDocker(t *testing.T) {
	e, err := New(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	info, err := e.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := workorder.NewTaskID()
	name := "sandbox-agent-test-echo:" + id
	buildEcho(t, e, name)
	spec := runtime.ContainerSpec{
		Name: "sandbox-agent-test-" + id, Image: name, Isolation: workorder.IsolationConfined,
		Labels: map[string]string{"sandbox-agent.test": id}, CgroupV2: info.CgroupVersion == 2, Seccomp: info.Seccomp,
	}
	runtimetest.Conformance(t, e, spec)
	t.Run("nothing is left", func(t *testing.T) {
		left, err := e.Volumes(t.Context(), map[string]string{"sandbox-agent.test": id})
		if err != nil || len(left) != 0 {
			t.Errorf("volumes = %v, %v", left, err)
		}
	})
	t.Run("a box that is held has no bind mount and is not privileged", func(t *testing.T) {
		box, err := e.Run(t.Context(), spec, bytes.NewReader([]byte("wait")))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Remove(context.WithoutCancel(t.Context()), box); err != nil {
				t.Error(err)
			}
		}()
		c, err := e.c.ContainerInspect(t.Context(), box)
		if err != nil {
			t.Fatal(err)
		}
		if c.HostConfig.Privileged || len(c.HostConfig.Binds) != 0 {
			t.Errorf("privileged %v, binds %v", c.HostConfig.Privileged, c.HostConfig.Binds)
		}
		for _, m := range c.Mounts {
			if m.Type == "bind" {
				t.Errorf("bind mount %+v", m)
			}
		}
		if c.Config.Cmd != nil || len(c.Config.Env) > 1 {
			t.Errorf("the order shows in the container's description: %v %v", c.Config.Cmd, c.Config.Env)
		}
	})
}

// TestPrivileged passes where the engine can give it and where it says that it cannot.
func TestPrivileged(t *testing.T) {
	e, err := New(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	name := "sandbox-agent-test-echo:" + workorder.NewTaskID()
	buildEcho(t, e, name)
	_, err = e.Probe(t.Context(), runtime.ContainerSpec{Image: name, Isolation: workorder.IsolationPrivileged, Labels: map[string]string{"sandbox-agent.test": "x"}}, []string{"/echo"})
	if err != nil && !errors.Is(err, runtime.ErrIsolation) {
		t.Errorf("neither given nor refused by name: %v", err)
	}
	t.Logf("privileged: %v", err)
}

func buildEcho(t *testing.T, e *Engine, name string) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "echo")
	if err := proc.Run(t.Context(), proc.Spec{
		Argv: []string{"go", "build", "-trimpath", "-o", bin, "./testdata/echo"}, Env: append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux"),
		Stdout: os.Stderr, Stderr: os.Stderr,
	}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		b    []byte
	}{{"Dockerfile", []byte("FROM scratch\nCOPY echo /echo\nENTRYPOINT [\"/echo\"]\n")}, {"echo", content}} {
		if err := tw.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.b)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(f.b); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := e.c.ImageBuild(t.Context(), &b, build.ImageBuildOptions{Tags: []string{name}, Remove: true, ForceRemove: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	said, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := e.ImageID(t.Context(), name); err != nil || id == "" {
		t.Fatalf("build: %v\n%s", err, said)
	}
	t.Cleanup(func() {
		if _, err := e.c.ImageRemove(context.WithoutCancel(t.Context()), name, image.RemoveOptions{Force: true, PruneChildren: true}); err != nil {
			t.Error(err)
		}
	})
}
