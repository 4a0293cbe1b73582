package egress

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxHosts bounds the distinct entries of a report; the rest is counted under otherHosts.
	maxHosts   = 1000
	otherHosts = "*"
	// maxBy bounds the processes or containers of an entry.
	maxBy = 3
	// maxAsked bounds an entry's attempts that are traced to a process: a search costs milliseconds.
	maxAsked = 6
)

type attempt struct {
	host     string
	port     uint16
	protocol string
	verdict  verdict
	reason   string
	rule     string        // as returned by fix; empty if no rule can allow it
	by       func() string // the process behind the attempt; may be nil
	quiet    bool          // emit no event: another one about the same destination follows
}

type ledgerKey struct {
	host     string
	port     uint16
	protocol string
	status   workorder.NetworkStatus
}

type ledgerEntry struct {
	workorder.NetworkHost
	asked int
}

// accessLog counts attempts and reports the first of each kind at once.
type accessLog struct {
	emit func(workorder.Event)

	mu      sync.Mutex
	mode    workorder.NetworkMode
	entries map[ledgerKey]*ledgerEntry
}

func newLedger(mode workorder.NetworkMode, emit func(workorder.Event)) *accessLog {
	return &accessLog{mode: mode, emit: emit, entries: map[ledgerKey]*ledgerEntry{}}
}

func (l *accessLog) setMode(m workorder.NetworkMode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = m
}

// note records an attempt. It may search for the process, so a caller with a waiting client answers first.
func (l *accessLog) note(a attempt) {
	k := ledgerKey{a.host, a.port, a.protocol, a.verdict.status()}
	l.mu.Lock()
	e, known := l.entries[k]
	if !known && len(l.entries) >= maxHosts {
		k.host, k.port = otherHosts, 0
		a.host, a.port, a.reason, a.rule = otherHosts, 0, "more hosts than a report holds", ""
		e, known = l.entries[k]
	}
	if !known {
		e = &ledgerEntry{NetworkHost: workorder.NetworkHost{
			Host: a.host, Port: a.port, Protocol: a.protocol, Status: a.verdict.status(), Reason: a.reason, Rule: a.rule, By: []string{},
		}}
		l.entries[k] = e
	}
	e.Count++
	ask := a.by != nil && len(e.By) < maxBy && e.asked < maxAsked
	if ask {
		e.asked++
	}
	l.mu.Unlock()

	by := ""
	if ask {
		if by = a.by(); by != "" {
			l.mu.Lock()
			if len(e.By) < maxBy && !slices.Contains(e.By, by) {
				e.By = append(e.By, by)
			}
			l.mu.Unlock()
		}
	}
	if known || a.quiet {
		return
	}
	name := a.host
	if a.port != 0 {
		name = net.JoinHostPort(a.host, strconv.Itoa(int(a.port)))
	}
	if a.verdict == allowed {
		a.rule = "" // no rule is missing
	}
	l.emit(workorder.Event{
		Type: workorder.EventNetwork, Name: name, Status: string(a.verdict.status()), By: by, Text: a.reason, Fix: a.rule,
	})
}

func (l *accessLog) report() workorder.NetworkReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := workorder.NetworkReport{Mode: l.mode, Hosts: make([]workorder.NetworkHost, 0, len(l.entries))}
	for _, e := range l.entries {
		h := e.NetworkHost
		h.By = slices.Clone(h.By)
		r.Hosts = append(r.Hosts, h)
	}
	slices.SortFunc(r.Hosts, func(a, b workorder.NetworkHost) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port),
			cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Status, b.Status))
	})
	return r
}
