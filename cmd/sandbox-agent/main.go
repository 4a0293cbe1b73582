// Command sandbox-agent is the host's command line. It wires and does nothing else.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/host/cli"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

func main() {
	proc.KeepFiles()
	ctx, cancel := context.WithCancel(context.Background())
	hard := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		close(hard)
		// A third one is the kernel's: whoever insists gets out.
		signal.Stop(signals)
	}()
	app := &cli.App{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Hard: hard,
		Executable: os.Executable, Open: openDocker,
	}
	code := cli.Main(ctx, app, os.Args[1:])
	cancel()
	os.Exit(code)
}
