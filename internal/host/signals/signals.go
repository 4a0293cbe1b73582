// Package signals decides what the signals to this program mean: to stop in order, to hurry, or to leave.
package signals

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sameAction is how long a signal is a repetition: GNU timeout signals its child and its group.
const sameAction = 2 * time.Second

// action is the meaning of a signal.
type action int

const (
	nothingNew action = iota // a repetition
	stop                     // end in order: the work is saved
	kill                     // end at once
	detach                   // end this command and leave the box alone
)

// signalState combines the signals received so far. The first one stops, and later ones change nothing, except at a terminal: a
// person who sees that the program stops can ask for more.
type signalState struct {
	last action
	at   time.Time
	// terminal reports whether a SIGINT can be a Ctrl-C now.
	terminal func() bool
}

func (w *signalState) hear(sig os.Signal, now time.Time) action {
	switch {
	case w.last == nothingNew:
		w.last = stop
	case now.Sub(w.at) < sameAction, sig != syscall.SIGINT, w.last == detach, !w.terminal():
		return nothingNew
	default:
		w.last++
	}
	w.at = now
	return w.last
}

// ending are the signals that end this command: from a person, the system, or a terminal that is closed.
func ending() (list []os.Signal) {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		// The parent may have switched it off: nohup, or a shell that starts a job in a script.
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}

// Stopped is the cause of the end of a context of Listen's.
type Stopped struct {
	Signal syscall.Signal
	// Terminal reports whether Ctrl-C reached this program when it came.
	Terminal bool
}

func (s *Stopped) Error() string { return "stopped by " + unix.SignalName(s.Signal) }

// Unwrap makes it the end of a context like any other.
func (s *Stopped) Unwrap() error { return context.Canceled }

// Listen ends ctx at the first signal, with a Stopped as cause, and closes hard when the user insists.
func Listen(ctx context.Context) (_ context.Context, hard <-chan struct{}, cancel func()) {
	return listen(ctx, atTerminal, nil)
}

// listen ends ctx at the first signal, and closes hard when the user insists. It calls heard, if not nil, for each signal.
func listen(ctx context.Context, terminal func() bool, heard func(os.Signal, action)) (_ context.Context, hard <-chan struct{},
	cancel func(),
) {
	ctx, end := context.WithCancelCause(ctx)
	cancel = func() { end(nil) }
	insisted := make(chan struct{})
	list := ending()
	if len(list) == 0 {
		return ctx, insisted, cancel // signal.Notify with an empty list would listen to all signals
	}
	const unread = 8 // more unread signals would change nothing
	arrived := make(chan os.Signal, unread)
	signal.Notify(arrived, list...)
	go func() {
		w := signalState{terminal: terminal}
		for sig := range arrived {
			if sig == syscall.SIGHUP && again() {
				continue
			}
			asked := w.hear(sig, time.Now())
			switch asked {
			case stop:
				number, _ := sig.(syscall.Signal)
				end(&Stopped{Signal: number, Terminal: terminal()})
			case kill:
				close(insisted)
			case detach:
				signal.Reset(syscall.SIGINT)
				_ = unix.Kill(os.Getpid(), syscall.SIGINT) // so that a shell sees that SIGINT ended it
			case nothingNew:
			}
			if heard != nil {
				heard(sig, asked)
			}
		}
	}()
	return ctx, insisted, cancel
}

// reloading is the server that reloads its configuration at SIGHUP.
type reloading struct {
	asked    chan struct{}
	terminal bool // it had one
}

var reloader atomic.Pointer[reloading]

// Reloads lets a server reload its configuration at SIGHUP, which no longer ends it, unless it comes since the terminal
// is gone that the server was started at. It holds until stop is called.
func Reloads() (asked <-chan struct{}, stop func()) {
	r := &reloading{asked: make(chan struct{}, 1), terminal: hasTerminal()}
	reloader.Store(r)
	forget := func() { reloader.CompareAndSwap(r, nil) }
	if !signal.Ignored(syscall.SIGHUP) {
		return r.asked, forget
	}
	// Started by nohup: SIGHUP is ignored so far.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	go func() {
		for range heard {
			again()
		}
	}()
	return r.asked, func() {
		signal.Ignore(syscall.SIGHUP)
		signal.Stop(heard)
		close(heard)
		forget()
	}
}

// again reports whether a SIGHUP asks to reload the configuration.
func again() bool {
	r := reloader.Load()
	if r == nil || r.terminal && !hasTerminal() {
		return false
	}
	select {
	case r.asked <- struct{}{}:
	default: // it is asked already
	}
	return true
}

func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	_ = tty.Close()
	return true
}

// atTerminal reports whether Ctrl-C reaches this process: it has a terminal and is in its foreground group.
func atTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
