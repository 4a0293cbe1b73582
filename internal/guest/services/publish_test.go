package services

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// A port of a service gives way to a container, and leads to the service again once that has ended.
func TestPortGivesWay(t *testing.T) {
	t.Parallel()
	var listen net.ListenConfig
	service, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	go func() {
		for {
			c, err := service.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	port := 20000 + os.Getpid()%10000 // the kernel gives others none of these by chance
	for ; port < 32000; port++ {
		if free, err := listen.Listen(t.Context(), "tcp", net.JoinHostPort(loopback, strconv.Itoa(port))); err == nil {
			_ = free.Close()
			break
		}
	}

	var gone atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	p := &publish{ctx: ctx, stop: stop, all: map[int]*forward{}, ended: func(_ context.Context, id string) bool { return id == "d" || id == "c" && gone.Load() }}
	defer p.close()
	if err := p.add(port, netip.MustParseAddrPort(service.Addr().String())); err != nil {
		t.Fatal(err)
	}
	at := net.JoinHostPort(loopback, strconv.Itoa(port))
	echoes := func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at)
		if err != nil {
			return false
		}
		defer c.Close()
		_, _ = c.Write([]byte("x"))
		_ = c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		return string(b) == "x"
	}
	if !echoes() {
		t.Error("the port does not lead to the service")
	}
	p.give("other", []string{"1", "x", "2-3"})()
	if !echoes() {
		t.Error("the port gave way to a container that does not want it")
	}
	started := p.give("c", []string{strconv.Itoa(port-1) + "-" + strconv.Itoa(port+1)})
	taken, err := listen.Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	started()
	_ = taken.Close()
	gone.Store(true)
	// Another container that starts on the port keeps it, also while the one before has ended.
	started = p.give("d", []string{strconv.Itoa(port)})
	if p.retaken(port) {
		t.Error("the port was taken from a container that starts")
	}
	started()
	for by := time.Now().Add(time.Minute); !echoes(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(by) {
			t.Fatal("the port does not lead to the service again")
		}
	}
}
