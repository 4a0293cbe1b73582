// Command guest runs inside a standalone sandbox. Its first argument selects its role:
//
//	init     the first process: starts serve, reaps orphans
//	serve    runs commands for clients
//	jail     the same with an inherited socket and configuration
//	lease    the same, as the first process of a nested sandbox
//	keep     holds a jail from outside
//	dial     connects its standard input and output to serve
//	reap     supervises one command
//	files    reads and writes files as the sandbox's user
//	version  prints the version
//
// It only dispatches: the roles are implemented in internal/guest/standalone, wireserver, nested, supervise and files, and
// in internal/jailshim. It must stay small, since each command runs an instance of it.
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
	"github.com/sandbox-agent/sandbox-agent/internal/guest/nested"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/standalone"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/jailshim"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
)

// needs are the resources of a role, allocated before a command can use up all that a sandbox may have.
type needs struct {
	procs   int // maximum number of threads that run at the same time, and thus of additional ones that the runtime may need
	threads int // slightly more than the observed use
}

// roleNeeds are for the roles that must survive a fork bomb.
var roleNeeds = map[string]needs{"init": {1, 6}, "serve": {2, 11}, "jail": {2, 11}, "lease": {2, 11}, "dial": {1, 5}, "reap": {1, 8}}

func main() { os.Exit(run(context.Background(), os.Args[1:])) }

func run(ctx context.Context, args []string) int {
	role := ""
	if len(args) == 1 {
		role = args[0]
	}
	if n, ok := roleNeeds[role]; ok {
		runtime.GOMAXPROCS(min(n.procs, runtime.GOMAXPROCS(0)))
		proc.PrestartThreads(n.threads)
	}
	if slices.Contains([]string{"init", "serve", "jail", "lease", "dial"}, role) {
		supervise.Hide() // commands of the same user could make it start processes that outlive them
	}
	var err error
	switch role {
	case "init":
		signals := make(chan os.Signal, 4) // the kernel drops signals to the first process without a handler
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		var code int
		if code, err = standalone.Init(standalone.Self, signals); err == nil {
			return code
		}
	case "serve":
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		if err = standalone.Serve(ctx, standalone.Default()); standalone.ExpectedEnd(err) {
			fmt.Fprintln(os.Stderr, "the sandbox ends: "+err.Error())
			return 0
		}
	case "jail", "lease":
		if role == "lease" {
			if err = nested.Enter(); err != nil {
				break
			}
		}
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		if err = standalone.ServeInherited(ctx); standalone.ExpectedEnd(err) {
			fmt.Fprintln(os.Stderr, "the sandbox ends: "+err.Error())
			return 0
		}
	case "keep":
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		err = jailshim.Main(ctx, os.Stdin, os.Stdout)
	case "dial":
		err = standalone.Dial(ctx, standalone.Default(), os.Stdin, os.Stdout)
	case "reap":
		return supervise.Main(ctx)
	case "files":
		err = files.Main(ctx)
	case "version":
		fmt.Println(version.Get().Version)
	default:
		fmt.Fprintln(
			os.Stderr,
			"usage: guest init | serve | jail | lease | keep | dial | reap | files | version\nThis program runs inside a sandbox; start "+
				"sandboxes with `sandbox-agent up`.",
		)
		return 64
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
