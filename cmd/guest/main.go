// Command guest is the inside of a sandbox without a task. Its first argument says which role it plays:
//
//	init     the first process: starts serve, buries orphans
//	serve    runs commands for whoever dials
//	jail     the same with a socket and a configuration that it inherits
//	lease    the same, as the first process of a lease
//	keep     holds a jail from outside of it
//	dial     joins its standard input and output to serve
//	reap     supervises one command
//	files    reads and writes files as the sandbox's user
//	version  prints the version
//
// It only wires: what the roles do is in internal/guest/stand, serve, lease, reap and files, and in internal/keep. It is small, since each command has one of it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/files"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/lease"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/reap"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/stand"
	"github.com/sandbox-agent/sandbox-agent/internal/keep"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
)

// needs are what a role has before a command is, which can use up all that a sandbox may have.
type needs struct {
	procs   int // how many threads run at once, at most, and so how many more the runtime may come to need
	threads int // some more than were seen in use
}

// roleNeeds are those of the roles that have to outlive a fork bomb. Each command has a "reap", and its caller a "dial".
var roleNeeds = map[string]needs{"init": {1, 6}, "serve": {2, 11}, "jail": {2, 11}, "lease": {2, 11}, "dial": {1, 5}, "reap": {1, 8}}

func main() { os.Exit(run(context.Background(), os.Args[1:])) }

func run(ctx context.Context, args []string) int {
	role := ""
	if len(args) == 1 {
		role = args[0]
	}
	if n, ok := roleNeeds[role]; ok {
		runtime.GOMAXPROCS(min(n.procs, runtime.GOMAXPROCS(0)))
		proc.KeepThreads(n.threads)
	}
	if slices.Contains([]string{"init", "serve", "jail", "lease", "dial"}, role) {
		reap.Hide() // commands of the same user would make it start what outlives them
	}
	var err error
	switch role {
	case "init":
		signals := make(chan os.Signal, 4) // the kernel drops signals to the first process that have no handler
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		var code int
		if code, err = stand.Init(stand.Self, signals); err == nil {
			return code
		}
	case "serve":
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		if err = stand.Serve(ctx, stand.Default()); stand.Over(err) {
			fmt.Fprintln(os.Stderr, "the sandbox ends: "+err.Error())
			return 0
		}
	case "jail", "lease":
		if role == "lease" {
			if err = lease.Enter(); err != nil {
				break
			}
		}
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		if err = stand.ServeInherited(ctx); stand.Over(err) {
			fmt.Fprintln(os.Stderr, "the sandbox ends: "+err.Error())
			return 0
		}
	case "keep":
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		err = keep.Main(ctx, os.Stdin, os.Stdout)
	case "dial":
		err = stand.Dial(ctx, stand.Default(), os.Stdin, os.Stdout)
	case "reap":
		return reap.Main(ctx)
	case "files":
		err = files.Main(ctx)
	case "version":
		fmt.Println(version.Get().Version)
	default:
		fmt.Fprintln(os.Stderr, "usage: guest init | serve | jail | lease | keep | dial | reap | files | version\nThis program is the inside of a sandbox; make sandboxes with `sandbox-agent up`.")
		return 64
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
