// Package signals translates signals to this program into stop, kill and detach.
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

// sameAction is how long a signal counts as a repetition: GNU timeout signals its child and its group.
const sameAction = 2 * time.Second

// action is the meaning of a signal.
type action int

const (
	nothingNew action = iota // a repetition
	stop                     // end in order: the work is saved
	kill                     // end at once
	detach                   // end this command and leave the box alone
)

// signalState combines the signals so far. Only a person at a terminal can ask for more than a stop.
type signalState struct {
	last     action
	at       time.Time
	terminal func() bool // reports whether a SIGINT can be a Ctrl-C
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

func ending() (list []os.Signal) {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		// nohup, or a shell that starts a background job, may ignore it.
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}

// Stopped is the cause with which Listen ends its context.
type Stopped struct {
	Signal   syscall.Signal
	Terminal bool // Ctrl-C could reach this program
}

func (s *Stopped) Error() string { return "stopped by " + unix.SignalName(s.Signal) }

func (s *Stopped) Unwrap() error { return context.Canceled }

// Listen ends ctx at the first signal, with a Stopped as cause, and closes hard when the user repeats it at a terminal.
func Listen(ctx context.Context) (_ context.Context, hard <-chan struct{}, cancel func()) {
	return listen(ctx, atTerminal, nil)
}

// listen is Listen; heard, if non-nil, is called for each signal.
func listen(ctx context.Context, terminal func() bool, heard func(os.Signal, action)) (_ context.Context, hard <-chan struct{},
	cancel func(),
) {
	ctx, end := context.WithCancelCause(ctx)
	cancel = func() { end(nil) }
	insisted := make(chan struct{})
	list := ending()
	if len(list) == 0 {
		return ctx, insisted, cancel // signal.Notify without signals would listen to all
	}
	const unread = 8 // further signals would change nothing
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
				_ = unix.Kill(os.Getpid(), syscall.SIGINT) // a shell then sees that SIGINT ended this process
			case nothingNew:
			}
			if heard != nil {
				heard(sig, asked)
			}
		}
	}()
	return ctx, insisted, cancel
}

// reloading is a server that reloads its configuration at SIGHUP.
type reloading struct {
	asked    chan struct{}
	terminal bool // it was started at a terminal
}

var reloader atomic.Pointer[reloading]

// Reloads makes SIGHUP send to asked instead of ending this process, until stop is called. A SIGHUP from closing the
// terminal that the server was started at still ends it.
func Reloads() (asked <-chan struct{}, stop func()) {
	r := &reloading{asked: make(chan struct{}, 1), terminal: hasTerminal()}
	reloader.Store(r)
	forget := func() { reloader.CompareAndSwap(r, nil) }
	if !signal.Ignored(syscall.SIGHUP) {
		return r.asked, forget
	}
	// nohup has ignored SIGHUP.
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

// again handles a SIGHUP, and reports whether it reloads the configuration.
func again() bool {
	r := reloader.Load()
	if r == nil || r.terminal && !hasTerminal() {
		return false
	}
	select {
	case r.asked <- struct{}{}:
	default: // already requested
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

// atTerminal reports whether Ctrl-C reaches this process, which is then in the terminal's foreground group.
func atTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
