package docker

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// An engine that takes up a request and never answers does not hold a caller: each one ends by its own deadline, and at once when its context ends.
func TestSilentEngine(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's own
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	e, err := New(func(name string) string {
		return map[string]string{"DOCKER_HOST": "tcp://" + ln.Addr().String()}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	// Nothing negotiates the version first: that has a deadline of its own.
	if err := client.WithVersion("1.41")(e.c); err != nil {
		t.Fatal(err)
	}
	sandboxes := &Sandboxes{e}
	guest := func(context.Context, string) ([]byte, error) { return nil, nil }
	calls := map[string]func(ctx context.Context) error{
		"Boxes": func(ctx context.Context) error {
			_, err := e.Instances(ctx, map[string]string{workorder.LabelTask: ""})
			return err
		},
		"Stand": func(ctx context.Context) error {
			_, err := sandboxes.Create(ctx, runtime.SandboxSpec{Image: "x", Guest: guest})
			return err
		},
		"Run": func(ctx context.Context) error {
			_, err := e.Run(ctx, runtime.ContainerSpec{Image: "x", Isolation: workorder.IsolationConfined}, strings.NewReader("{}"))
			return err
		},
		"StartAgain": func(ctx context.Context) error { return sandboxes.Start(ctx, "x") },
		"StartWith":  func(ctx context.Context) error { return e.StartWithInput(ctx, "x", strings.NewReader("{}")) },
		"Stream": func(ctx context.Context) error {
			_, err := sandboxes.Stream(ctx, "x")
			return err
		},
		"hijacked": func(ctx context.Context) error {
			_, err := e.hijacked(ctx, "x", func() (types.HijackedResponse, error) {
				return e.c.ContainerExecAttach(ctx, "x", container.ExecAttachOptions{})
			})
			return e.wrap("attach", err)
		},
		"Exec": func(ctx context.Context) error {
			_, err := e.Exec(ctx, "x", runtime.ExecSpec{Argv: []string{"true"}})
			return err
		},
		"Logs": func(ctx context.Context) error { return e.Logs(ctx, "x", runtime.LogOptions{Follow: true}) },
		"CopyOut": func(ctx context.Context) error {
			_, err := e.CopyOut(ctx, "x", "/x")
			return err
		},
		"SetNetwork": func(ctx context.Context) error {
			return sandboxes.SetNetwork(ctx, "x", workorder.NetworkPolicy{Mode: workorder.NetworkNone})
		},
		"RemoveSnapshot": func(ctx context.Context) error { return sandboxes.RemoveSnapshot(ctx, "x") },
	}
	e.listTime, e.answerTime, e.createTime = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	for name, call := range calls {
		if err := call(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	e.listTime, e.answerTime, e.createTime = time.Hour, time.Hour, time.Hour
	calls["Remove"] = func(ctx context.Context) error { return e.Remove(ctx, "x") }
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := call(ctx); err == nil {
				t.Errorf("%s ends without an error", name)
			}
		})
	}
	all.Wait()
}
