package services

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// publish forwards the sandbox's own TCP ports to services. It yields a port to a container that publishes
// it, such as one of the repository's own compose file, and takes it back when the container has ended.
type publish struct {
	ctx  context.Context // ends with the services
	stop context.CancelFunc
	// ended reports whether a container no longer holds any port.
	ended func(ctx context.Context, id string) bool

	mu  sync.Mutex
	all map[int]*forward // by port
}

type forward struct {
	to       netip.AddrPort
	listener net.Listener // nil while a container holds the port
	holder   string       // that container, the last one to start
	starting int          // number of containers that the engine is starting on the port
}

const (
	dialTime = 10 * time.Second
	// retake is the interval of checks whether a port is free again.
	retake = time.Second
)

// add forwards a port. A port that another program uses is left to it.
func (p *publish) add(port int, to netip.AddrPort) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &forward{to: to}
	if err := p.open(port, f); err != nil {
		return err
	}
	p.all[port] = f
	return nil
}

// open must be called with the lock held.
func (p *publish) open(port int, f *forward) error {
	l, err := (&net.ListenConfig{}).Listen(p.ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	f.listener, f.holder = l, ""
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go carry(p.ctx, c, f.to)
		}
	}()
	return nil
}

func carry(ctx context.Context, client net.Conn, to netip.AddrPort) {
	defer client.Close()
	server, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			if c, ok := way[1].(*net.TCPConn); ok {
				_ = c.CloseWrite()
			}
		})
	}
	both.Wait()
}

// give frees ports ("80", "8000-8010") for a container that is about to start. Call started when the engine
// has answered.
func (p *publish) give(id string, ports []string) (started func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var given []int
	var wanted []*forward
	for port, f := range p.all {
		if !wants(ports, port) {
			continue
		}
		if f.listener != nil {
			_ = f.listener.Close()
			given = append(given, port)
		}
		f.listener, f.holder = nil, id
		f.starting++
		wanted = append(wanted, f)
	}
	return func() {
		p.mu.Lock()
		for _, f := range wanted {
			f.starting--
		}
		p.mu.Unlock()
		if len(given) > 0 {
			go p.take(given)
		}
	}
}

func wants(ports []string, port int) bool {
	for _, p := range ports {
		first, last, span := strings.Cut(p, "-")
		from, err := strconv.Atoi(first)
		to := from
		if span && err == nil {
			to, err = strconv.Atoi(last)
		}
		if err == nil && from <= port && port <= to {
			return true
		}
	}
	return false
}

// take reopens the ports once their containers have ended.
func (p *publish) take(ports []int) {
	tick := time.NewTicker(retake)
	defer tick.Stop()
	for len(ports) > 0 {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		var left []int
		for _, port := range ports {
			if !p.retaken(port) {
				left = append(left, port)
			}
		}
		ports = left
	}
}

func (p *publish) retaken(port int) bool {
	p.mu.Lock()
	f, holder, starting := p.all[port], "", 0
	if f != nil {
		holder, starting = f.holder, f.starting
	}
	p.mu.Unlock()
	if starting > 0 || holder != "" && !p.ended(p.ctx, holder) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f == nil || p.all[port] != f || f.listener != nil {
		return true
	}
	return f.starting == 0 && f.holder == holder && p.open(port, f) == nil
}

func (p *publish) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.all {
		if f.listener != nil {
			_ = f.listener.Close()
		}
	}
	clear(p.all)
	p.stop()
}
