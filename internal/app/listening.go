package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// exposeTime is how long a server may take until it listens: one that compiles itself first needs some of it.
	exposeTime = 30 * time.Second
	exposePoll = 50 * time.Millisecond
	// endTime bounds the end of a command that did not listen.
	endTime = 10 * time.Second
	// saidTail is how much of its output is shown, in bytes.
	saidTail = 2 << 10
)

// AwaitListening waits until a background command listens at the ports. If it does not, it is ended together with its endpoints, and the
// error has the end of its output.
func (p Endpoints) AwaitListening(ctx context.Context, sb *sandbox.Sandbox, c *sandbox.Process, ports []Port) error {
	wait, cancel := context.WithTimeout(ctx, exposeTime)
	defer cancel()
	out := proc.NewTail(saidTail)
	over := make(chan string, 1)
	go func() {
		r, err := c.Wait(wait, out, out)
		switch {
		case wait.Err() != nil: // the caller has stopped waiting
		case err != nil:
			over <- err.Error()
		default:
			over <- fmt.Sprintf("the command has ended with exit code %d", r.ExitCode)
		}
	}()
	why := ""
	for why == "" {
		all, err := sb.Endpoints().Ports(wait)
		if err == nil && !slices.ContainsFunc(ports, func(p Port) bool { return !listens(all, p.Port) }) {
			return nil
		}
		select {
		case why = <-over:
		case <-wait.Done():
			why = fmt.Sprintf("the command has not listened there for %s", exposeTime)
		case <-time.After(exposePoll):
		}
	}
	if ctx.Err() != nil {
		return tasks.ErrInterrupted
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	inside := make([]int, 0, len(ports))
	for _, p := range ports {
		inside = append(inside, p.Port)
	}
	err := errors.Join(c.End(clean), p.Remove(clean, sb.Name(), inside))
	if said := strings.TrimSpace(text.Clean(out.String())); said != "" {
		why += ", and said last:\n" + said
	}
	err = errors.Join(fmt.Errorf("no server at port %s of %s: %s", strings.Trim(fmt.Sprint(inside), "[]"), sb.Name(), why), err)
	return exiterr.New(workorder.ExitGeneral, err, "it has to listen at the sandbox's loopback or at all its addresses")
}

// listens reports whether something listens at the port where an endpoint reaches it.
func listens(all []sandbox.Port, port int) bool {
	return slices.ContainsFunc(all, func(p sandbox.Port) bool {
		at, err := netip.ParseAddr(p.Address)
		return err == nil && p.Port == port && (at.IsLoopback() || at.IsUnspecified())
	})
}
