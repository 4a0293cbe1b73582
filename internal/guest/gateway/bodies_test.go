package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestSmallRequestsOfUnknownLength: five at a time pass, and hold as much as they are as long as their answers take.
func TestSmallRequestsOfUnknownLength(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
		message(w, anyUsage)
	}, nil)
	var all sync.WaitGroup
	const n = 10
	for range n {
		all.Go(func() {
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+b.addr+"/anthropic/v1/messages", io.MultiReader(strings.NewReader(ask1)))
			req.Header.Set("X-Api-Key", b.env["ANTHROPIC_API_KEY"])
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != 200 || req.ContentLength != 0 {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	for range n {
		<-arrived
	}
	if held := maxHeld - b.room.left(); held > n*firstRead {
		t.Errorf("%d bytes are held", held)
	}
	close(release)
	all.Wait()
	waitFor(t, "the end of all", func() bool { return b.room.left() == maxHeld })
}

func (r *memoryLimit) left() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.free
}

// TestRoom: requests and answers share one bound. A request that finds no room is refused, an answer waits; one that
// waits in vain passes, and the most that it may have used is held of the budget.
func TestRoom(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"message","model":"claude-sonnet-4-5","x":"`+strings.Repeat("x", size)+`","usage":{"input_tokens":7,"output_tokens":1}}`)
	}, func(c *ModelsConfig) {
		c.limits = limits{answer: answerTime, write: writeTime, room: 50 * time.Millisecond, held: 4 * size}
	})
	if status, got, _ := b.post("/anthropic/v1/messages", ask1); status != 200 || len(got) < size {
		t.Errorf("%d, %d bytes", status, len(got))
	}
	b.wants(workorder.Usage{InputTokens: 7, OutputTokens: 1}, 1, (7*3+15)/1e6)
	waitFor(t, "the end", func() bool { return b.room.left() == 4*size })
	large := ask1[:len(ask1)-1] + strings.Repeat(" ", 5*size) + "}"
	if status, got, _ := b.post("/anthropic/v1/messages", large); status != 429 {
		t.Errorf("%d %s", status, got)
	}
	b.refused(2, errBusy.kind)
	waitFor(t, "the end", func() bool { return b.room.left() == 4*size })
	b.room.take(4*size - 2*firstRead) // another's
	status, got, _ := b.post("/anthropic/v1/messages", ask1)
	if status != 200 || len(got) < size || !strings.HasSuffix(got, "}}") {
		t.Errorf("%d, %d bytes", status, len(got))
	}
	if u, _ := b.Usage(); u.OutputTokens != 1 || u.CostUSD == nil || u.ReservedUSD < 10*15/1e6 || !u.Estimated || b.held() != u.ReservedUSD {
		t.Errorf("%+v", u)
	}
	waitFor(t, "the end", func() bool { return b.room.left() == 2*firstRead })
}

func TestFill(t *testing.T) {
	r := newMemoryLimit(1 << 20)
	for _, n := range []int{0, 1, firstRead, 100_000, 300_000} {
		p := memoryShare{room: r}
		want := bytes.Repeat([]byte("x"), n)
		got, err := p.fill(iotest.OneByteReader(bytes.NewReader(want)), 300_000)
		if err != nil || !bytes.Equal(got, want) || p.size != int64(cap(got)) || r.left() != 1<<20-p.size {
			t.Errorf("%d: %d bytes, %v, holds %d", n, len(got), err, p.size)
		}
		p.release()
	}
	p := memoryShare{room: r}
	if _, err := p.fill(strings.NewReader("four"), 3); !errors.Is(err, errTooLong) {
		t.Error(err)
	}
	if _, err := p.fill(iotest.ErrReader(io.ErrNoProgress), 3); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
	p.release()
	if _, err := p.fill(bytes.NewReader(make([]byte, 1<<20)), 1<<20); !errors.Is(err, errNoRoom) {
		t.Error(err)
	}
	if p.release(); r.left() != 1<<20 {
		t.Errorf("%d bytes are left", r.left())
	}
	// Who waits goes on when there is room, and ends when all is over.
	first, over := memoryShare{room: r}, make(chan struct{})
	first.grow(1 << 20)
	second := memoryShare{room: r, patience: time.Hour, over: over}
	done := make(chan bool)
	go func() { done <- second.grow(1) }()
	first.release()
	if !<-done || second.size != 1 {
		t.Error("it did not get what was given back")
	}
	go func() { done <- second.grow(1 << 20) }()
	close(over)
	if <-done {
		t.Error("it got more than there is")
	}
}

// TestStopWhileRequestsBegin: whatever comes while the gateway ends, it ends.
func TestStopWhileRequestsBegin(t *testing.T) {
	t.Parallel()
	for range 20 {
		b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { message(w, anyUsage) }, nil)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for b.over.Err() == nil {
					b.post("/anthropic/v1/messages", ask1)
				}
			})
		}
		waitFor(t, "a request", func() bool { return b.requests() > 0 })
		b.Stop()
		all.Wait()
		if b.Models.begin() {
			t.Fatal("a request began after the end")
		}
	}
}

// TestSlowRequest: a client that never sends its body holds little, and goes when the gateway ends.
func TestSlowRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, nil)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: "+b.env["ANTHROPIC_API_KEY"]+"\r\nContent-Length: 60000000\r\n\r\n{")
	waitFor(t, "the request", func() bool { return b.room.left() < maxHeld })
	if held := maxHeld - b.room.left(); held > firstRead {
		t.Errorf("%d bytes are held", held)
	}
	b.Stop()
	waitFor(t, "the end", func() bool { return b.room.left() == maxHeld })
}
