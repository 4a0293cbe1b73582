// Command sandbox-agent is the host's command line. It wires and does nothing else.
package main

import (
	"context"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/host/cli"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

func main() {
	proc.KeepFiles()
	ctx, hard, cancel := listen(context.Background(), atTerminal, nil)
	app := &cli.App{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Hard: hard,
		Executable: os.Executable, Open: openDocker,
	}
	code := cli.Main(ctx, app, os.Args[1:])
	cancel()
	os.Exit(code)
}
