// Package signals says what the signals that this program gets ask for: to stop in order, to hurry, or to leave.
package signals

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sameWish is the time in which several signals are one: GNU timeout signals its child and then the group of
// both, a shell that is closed its jobs and their groups, a service manager every process of the unit. No person presses Ctrl-C a second time
// before the program has answered the first.
const sameWish = 2 * time.Second

// wish is what a signal asks for.
type wish int

const (
	nothingNew wish = iota // of what was asked for already
	stop                   // end in order: the work is saved
	hurry                  // end at once
	leave                  // end this command, whatever becomes of the box
)

// wishes are what was asked for so far. Each signal stops, none of them twice: only a person at the terminal, who
// sees that it stops, can ask for more.
type wishes struct {
	last wish
	at   time.Time
	// terminal reports whether a SIGINT of this moment can be Ctrl-C.
	terminal func() bool
}

func (w *wishes) hear(sig os.Signal, now time.Time) wish {
	switch {
	case w.last == nothingNew:
		w.last = stop
	case now.Sub(w.at) < sameWish, sig != syscall.SIGINT, w.last == leave, !w.terminal():
		return nothingNew
	default:
		w.last++
	}
	w.at = now
	return w.last
}

// ending are those that end this command: of a person, of the system, and of a terminal that is closed.
func ending() (list []os.Signal) {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		// The parent may not want us to hear it: nohup, and a shell that starts a job in a script.
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}

// Listen ends ctx at the first signal, and closes hard when the user insists.
func Listen(ctx context.Context) (_ context.Context, hard <-chan struct{}, cancel func()) {
	return listen(ctx, atTerminal, nil)
}

// listen ends ctx at the first signal, and closes hard when the user insists. heard, if not nil, is told of each.
func listen(ctx context.Context, terminal func() bool, heard func(os.Signal, wish)) (_ context.Context, hard <-chan struct{}, cancel func()) {
	ctx, cancel = context.WithCancel(ctx)
	insisted := make(chan struct{})
	list := ending()
	if len(list) == 0 {
		return ctx, insisted, cancel // to listen to none is, to the library, to listen to all
	}
	const unread = 8 // more at once say nothing more
	arrived := make(chan os.Signal, unread)
	signal.Notify(arrived, list...)
	go func() {
		w := wishes{terminal: terminal}
		for sig := range arrived {
			asked := w.hear(sig, time.Now())
			switch asked {
			case stop:
				cancel()
			case hurry:
				close(insisted)
			case leave:
				signal.Reset(syscall.SIGINT)
				_ = unix.Kill(os.Getpid(), syscall.SIGINT) // so that a shell sees what ended it
			case nothingNew:
			}
			if heard != nil {
				heard(sig, asked)
			}
		}
	}()
	return ctx, insisted, cancel
}

// atTerminal reports whether Ctrl-C reaches this process: it has a terminal and is of the group in its foreground.
func atTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
