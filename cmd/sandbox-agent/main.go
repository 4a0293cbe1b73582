// Command sandbox-agent is the host's command line. It wires and does nothing else.
package main

import (
	"context"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cli"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/programs"
	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime/docker"
	"github.com/sandbox-agent/sandbox-agent/internal/host/signals"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

func main() {
	proc.SetCloseOnExec()
	ctx, hard, cancel := signals.Listen(context.Background())
	f := cmdutil.New(cmdutil.IO{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, app.Env{
		Getenv: os.Getenv, Executable: os.Executable, OpenEngine: openDocker, OpenSandboxes: sandbox.NewManager, Hard: hard,
	})
	f.Reloads = signals.Reloads
	code := cli.Main(ctx, f, os.Args[1:])
	cancel()
	os.Exit(code)
}

func openDocker() (*app.Backend, error) {
	e, err := docker.New(os.Getenv)
	if err != nil {
		return nil, err
	}
	dir, err := statedir.DefaultDir(os.Getenv)
	if err != nil {
		dir = os.TempDir() // only a lock lies there
	}
	images := provision.Images{Client: e.Client(), Version: version.String(), StateDir: dir, Programs: programs.New(nil, os.Getenv, dir)}
	return &app.Backend{Engine: e, Images: images}, nil
}
