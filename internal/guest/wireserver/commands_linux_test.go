package wireserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "reap" {
		os.Exit(supervise.Main(context.Background()))
	}
	os.Exit(m.Run())
}

func newTestCommands(t *testing.T) *commands {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return newCommands(Config{Dir: "/", Env: os.Environ(), Self: self, Reap: []string{"reap"}, OOMKills: func() int { return 0 }})
}

func sh(script string) wire.Command { return wire.Command{Argv: []string{"sh", "-c", script}} }

// A command whose client is slow to take its output loses none of it, and has not timed out when it had ended by itself.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	// More than the spool keeps, and the rest in the pipe: it ends, and waits for its reader.
	what := sh(fmt.Sprintf("head -c %d /dev/zero", spoolSize+wire.MaxOutputFrame/2))
	what.TimeoutMS = 3000
	c, err := newTestCommands(t).start(t.Context(), what)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.run.Wait(); err != nil {
		t.Fatal(err)
	}
	for over := false; !over; time.Sleep(time.Millisecond) { // go test's own deadline ends the wait
		c.mu.Lock()
		over = c.timeout
		c.mu.Unlock()
	}
	for at := int64(0); ; c.out.read(at) {
		p, lost, err := c.out.next(t.Context(), at, nil)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || lost > 0 {
			t.Fatalf("%d bytes were lost, %v", lost, err)
		}
		at += int64(len(p.data))
	}
	<-c.done
	if c.exit.TimedOut || c.exit.Code != 0 {
		t.Errorf("%+v", c.exit)
	}
}

// At the sandbox's end no command starts, and one that is starting is ended: a client never sees a command
// that was not started.
func TestEndWhileStarting(t *testing.T) {
	t.Parallel()
	cs := newTestCommands(t)
	begun := make(chan *command)
	go func() {
		defer close(begun)
		for {
			what := sh("sleep 1000")
			what.Background = true
			c, err := cs.start(context.WithoutCancel(t.Context()), what)
			if err != nil {
				return
			}
			begun <- c
		}
	}()
	all := []*command{<-begun}
	go cs.endAll()
	for c := range begun {
		all = append(all, c)
	}
	for _, c := range all {
		<-c.done
	}
	if n := cs.running(); n != 0 {
		t.Errorf("%d commands run", n)
	}
}
