// Command entrypoint is the only program of the image. Its first argument selects its role in the box:
//
//	init     PID 1: reads the work order, forks boot, forwards signals, reaps
//	boot     the trusted part of the run; --plan prints its steps
//	rescue   the last push and a result, after boot died
//	browse   the browser's side of viewing the development server; not as root
//	dev      the agent's command for the development server: start, restart, stop, status, logs
//	cache    maintains the layer cache, in a standalone box
//	shell    becomes the user's shell, or a command, next to the agent; --check reports whether it can
//	reap     supervises one command of a standalone box
//	files    reads and writes files of such a box for clients outside, as its user
//	dial     connects its standard input and output to the server of such a box
//	prepare  installs packages or tools into an image that is being built from this one
//	ground   reports whether PID 1 can prepare a box here completely; for doctor
//	version  prints the version
//
// It only dispatches: the roles are implemented in internal/guest and runner.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/files"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/hardening"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/initd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/innerengine"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/roles"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/runner/browse"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	os.Exit(run(context.Background(), log, os.Args[1:]))
}

func run(ctx context.Context, log *slog.Logger, args []string) int {
	role := ""
	if len(args) > 0 {
		role, args = args[0], args[1:]
	}
	switch role {
	case "init":
		return runInit(log)
	case "boot":
		if len(args) == 1 && args[0] == "--plan" {
			return roles.Plan(log)
		}
		return roles.Boot(ctx, log)
	case "rescue":
		return roles.Rescue(ctx, log)
	case "browse":
		if err := browse.Visit(os.Stdin, os.Stdout); err != nil {
			log.Error("browse", "error", err)
			return workorder.ExitGeneral
		}
		return workorder.ExitOK
	case "dev":
		code, err := browse.Dev(ctx, args, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return code
	case "cache":
		if len(args) == 1 {
			return innerengine.ServeCache(ctx, log, args[0], os.Stdin, os.Stdout)
		}
	case "shell":
		if len(args) == 1 && args[0] == "--check" {
			return roles.Shell(nil, true)
		}
		if len(args) > 0 && args[0] == "--" {
			args = args[1:]
		}
		return roles.Shell(args, false)
	case "reap":
		return supervise.Main(ctx)
	case "files":
		if err := files.Main(ctx); err != nil {
			log.Error("files", "error", err)
			return workorder.ExitGeneral
		}
		return workorder.ExitOK
	case "dial":
		if err := roles.Dial(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return workorder.ExitGeneral
		}
		return workorder.ExitOK
	case "prepare":
		if len(args) < 2 {
			break
		}
		if err := roles.Prepare(ctx, args[0], args[1:]); err != nil {
			log.Error("prepare", "error", err)
			return workorder.ExitBox
		}
		return workorder.ExitOK
	case "ground":
		if err := hardening.Prepare(workorder.Limits{}); err != nil {
			fmt.Println(err)
			return workorder.ExitBox
		}
		return workorder.ExitOK
	case "version", "--version":
		fmt.Println(version.Get().Version)
		return workorder.ExitOK
	}
	fmt.Fprintln(
		os.Stderr,
		"usage: entrypoint init | boot [--plan] | rescue | browse | dev VERB | cache VERB | shell [--check | -- COMMAND] | reap | "+
			"files | dial | prepare packages|tools NAME... | ground | version\n"+
			"This program runs inside a sandbox; start sandboxes with `sandbox-agent create`.",
	)
	return workorder.ExitUsage
}

// initThreads is the number of threads started before the agent, which can use up the limit of the box.
const initThreads = 12

func runInit(log *slog.Logger) int {
	// First of all: the kernel drops signals to PID 1 without a handler.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, initd.LongStop)
	proc.PrestartThreads(initThreads)
	i := initd.Init{
		Order: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Log: log, Self: "/proc/self/exe", Signals: signals,
		Done: func() bool {
			_, err := os.Stat(filepath.Join(workorder.OutDir, workorder.ResultFile))
			return !errors.Is(err, os.ErrNotExist)
		},
		Prepare: func(order []byte) []string { return hardening.EnvFor(hardening.Prepare(decodeOrder(order).Limits)) },
		Work:    workTime, KillAgent: hardening.KillAgent,
		Longest: longest, KillAll: killAll,
	}
	return i.Run()
}

// longest returns the order's time limit plus the landing and the following steps, and a minute.
func longest(order []byte) time.Duration {
	const margin = time.Minute
	if workTime(order) == 0 {
		return 0
	}
	return workTime(order) + workorder.AgentGrace + workorder.LandLimit + workorder.BundleGrace + workorder.AfterLimit + margin
}

// workTime returns the order's time limit, 0 if it has none; the default for an unreadable order.
func workTime(order []byte) time.Duration {
	o := decodeOrder(order)
	if o.Mode == workorder.ModeStandalone {
		return 0
	}
	return o.Timeout()
}

func decodeOrder(order []byte) *workorder.Order {
	if env, err := workorder.DecodeEnvelope(bytes.NewReader(order)); err == nil {
		return &env.Order
	}
	return &workorder.Order{}
}

// killAll kills all other processes. Only PID 1 may do so: elsewhere "all" would be those of the machine.
func killAll() {
	if os.Getpid() == 1 {
		_ = syscall.Kill(-1, syscall.SIGKILL)
	}
}
