package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// A sandbox for as long as the program needs it.
func Example() {
	ctx := context.Background()
	m, err := sandbox.NewManager(sandbox.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	sb, err := m.Create(ctx, sandbox.Spec{Image: "debian:trixie", Network: sandbox.NetworkNone, Lifetime: sandbox.LifetimeEphemeral})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = sb.Remove(ctx, sandbox.RemoveOptions{}) }()
	r, err := sb.Run(ctx, sandbox.Command{Argv: []string{"sh", "-c", "echo hello; exit 3"}, Timeout: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d %s", r.ExitCode, r.Stdout)
}

// A command that outlives the program that started it.
func ExampleSandbox_Attach() {
	ctx := context.Background()
	m, err := sandbox.NewManager(sandbox.Options{})
	if err != nil {
		log.Fatal(err)
	}
	sb, err := m.Get(ctx, "dev")
	if err != nil {
		log.Fatal(err)
	}
	p, err := sb.Start(ctx, sandbox.Command{Argv: []string{"make", "all"}, Background: true})
	if err != nil {
		log.Fatal(err)
	}
	id := p.ID()
	_ = p.Close() // the command goes on

	again, err := sb.Attach(ctx, id, 0)
	if err != nil {
		log.Fatal(err)
	}
	r, err := again.Wait(ctx, log.Writer(), log.Writer())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.ExitCode)
}

// Files go in, and what a command made of them comes out.
func ExampleSandbox_Files() {
	ctx := context.Background()
	m, err := sandbox.NewManager(sandbox.Options{})
	if err != nil {
		log.Fatal(err)
	}
	sb, err := m.Get(ctx, "dev")
	if err != nil {
		log.Fatal(err)
	}
	files := sb.Files()
	if _, err := files.CopyIn(ctx, "project/.", "/work"); err != nil {
		log.Fatal(err)
	}
	if err := files.Write(ctx, "/work/settings.json", strings.NewReader(`{"fast":true}`), sandbox.WriteOptions{}); err != nil {
		log.Fatal(err)
	}
	if _, err := sb.Run(ctx, sandbox.Command{Argv: []string{"make", "report"}, Dir: "/work"}); err != nil {
		log.Fatal(err)
	}
	if info, err := files.Stat(ctx, "/work/report.html"); errors.Is(err, sandbox.ErrNotFound) {
		fmt.Println("there is no report")
	} else if err == nil {
		fmt.Println(info.Size)
	}
	copied, err := files.CopyOut(ctx, "/work/report.html", ".")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(copied.Files, copied.Bytes)
}

// Files that are kept under a name are brought back, and had by a second sandbox.
func ExampleSandbox_Snapshot() {
	ctx := context.Background()
	m, err := sandbox.NewManager(sandbox.Options{})
	if err != nil {
		log.Fatal(err)
	}
	sb, err := m.Get(ctx, "dev")
	if err != nil {
		log.Fatal(err)
	}
	if err := sb.SetNetwork(ctx, sandbox.NetworkNone); err != nil { // while it runs
		log.Fatal(err)
	}
	kept, err := sb.Snapshot(ctx, "before-upgrade")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(kept.Bytes, kept.Omitted)
	if _, err := sb.Fork(ctx, "dev-2"); err != nil {
		log.Fatal(err)
	}
	if _, err := m.Snapshots().Restore(ctx, "dev", "before-upgrade"); err != nil { // what it had is the snapshot before-restore
		log.Fatal(err)
	}
}
