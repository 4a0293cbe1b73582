// Package connowner identifies the process or container behind a connection or a process id. Untrusted programs choose what it reads, so
// its results are for reports only.
package connowner

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	// maxName bounds a name, in bytes: the kernel keeps 15 of a program's, Docker allows longer ones for containers.
	maxName = 64
	// maxProcesses bounds one search through /proc.
	maxProcesses = 8192
	// maxSockets bounds the lines read of one table of sockets.
	maxSockets = 65536
	// searchTime bounds one search: a report is not worth more.
	searchTime = 100 * time.Millisecond
	// askTime bounds a query of the engine about a container.
	askTime = 500 * time.Millisecond
	// recentPIDs are examined first: a process that opened a connection often opens another.
	recentPIDs = 32
	// idLength is the length of a container's id in hexadecimal.
	idLength = 64
)

// Finder names processes and containers. It is safe for concurrent use; searches run one at a time.
type Finder struct {
	byID func(ctx context.Context, id string) string
	byIP func(ctx context.Context, ip netip.Addr) string
	proc string // the mount of procfs

	turn   chan struct{} // holds one token
	mu     sync.Mutex
	recent []int
}

// New returns a Finder. containerName returns the name of an inner container by its id, containerByIP by its address,
// or "". Either may be nil.
func New(containerName func(ctx context.Context, id string) string, containerByIP func(ctx context.Context, ip netip.Addr) string) *Finder {
	if containerName == nil {
		containerName = func(context.Context, string) string { return "" }
	}
	if containerByIP == nil {
		containerByIP = func(context.Context, netip.Addr) string { return "" }
	}
	f := &Finder{byID: containerName, byIP: containerByIP, proc: "/proc", turn: make(chan struct{}, 1)}
	f.turn <- struct{}{}
	return f
}

// Process returns "curl (pid 123)", or "container redis: curl" in an inner container; "pid 123" if the process is gone.
func (f *Finder) Process(pid int) string {
	b, err := os.ReadFile(filepath.Join(f.proc, strconv.Itoa(pid), "comm"))
	if err != nil {
		return fmt.Sprintf("pid %d", pid)
	}
	name := Clean(strings.TrimSuffix(string(b), "\n"))
	if c := f.containerOf(pid); c != "" {
		return "container " + c + ": " + name
	}
	return fmt.Sprintf("%s (pid %d)", name, pid)
}

// containerOf returns the name of a process's inner container, by the innermost id of the cgroup.
func (f *Finder) containerOf(pid int) string {
	b, err := os.ReadFile(filepath.Join(f.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	var ids []string
	for line := range strings.Lines(string(b)) {
		if id := lastID(strings.TrimSpace(line)); id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime) //nolint:forbidigo // a report outlives the connection that it is about
	defer cancel()
	for _, id := range ids {
		if n := f.byID(ctx, id); n != "" {
			return Clean(n)
		}
	}
	return ""
}

func lastID(path string) string {
	words := strings.FieldsFunc(path, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) })
	for _, w := range slices.Backward(words) {
		if len(w) == idLength {
			return w
		}
	}
	return ""
}

// TCP identifies the process at the client's end of a TCP connection from local to remote; "" if it is not found.
func (f *Finder) TCP(local, remote netip.AddrPort) string {
	return f.socket(local, remote, "net/tcp", "net/tcp6")
}

// UDP identifies the process with the UDP socket that sent from local.
func (f *Finder) UDP(local netip.AddrPort) string {
	return f.socket(local, netip.AddrPort{}, "net/udp", "net/udp6")
}

func (f *Finder) socket(local, remote netip.AddrPort, tables ...string) string {
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	if by, known := f.Container(local.Addr()); known {
		return by
	}
	t := time.NewTimer(searchTime)
	defer t.Stop()
	select {
	case <-f.turn:
	case <-t.C:
		return ""
	}
	defer func() { f.turn <- struct{}{} }()
	for _, name := range tables {
		inode := findInode(filepath.Join(f.proc, name), local, remote)
		if inode == "" {
			continue
		}
		if pid := f.holder("socket:[" + inode + "]"); pid != 0 {
			return f.Process(pid)
		}
	}
	return ""
}

// Container returns "container NAME" for an address that is not the box's own; known reports that it is not.
func (f *Finder) Container(a netip.Addr) (by string, known bool) {
	a = a.Unmap()
	if a.IsLoopback() || isOwn(a) {
		return "", false
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime) //nolint:forbidigo // a report outlives the connection that it is about
	defer cancel()
	if n := f.byIP(ctx, a); n != "" {
		return "container " + Clean(n), true
	}
	return "container at " + a.WithZone("").String(), true
}

func isOwn(a netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(x net.Addr) bool {
		p, err := netip.ParsePrefix(x.String())
		return err == nil && p.Addr().Unmap() == a.WithZone("")
	})
}

// findInode searches a kernel table for a socket; one bound to every address matches by its port. remote may be zero.
func findInode(path string, local, remote netip.AddrPort) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	loose := ""
	s := bufio.NewScanner(file)
	for i := 0; i < maxSockets && s.Scan(); i++ {
		col := strings.Fields(s.Text())
		if len(col) < 10 {
			continue
		}
		l, err1 := parseSocket(col[1])
		r, err2 := parseSocket(col[2])
		if err1 != nil || err2 != nil || l.Port() != local.Port() || remote.IsValid() && r != remote || col[9] == "0" {
			continue
		}
		if l.Addr() == local.Addr() {
			return col[9]
		}
		if l.Addr().IsUnspecified() {
			loose = col[9]
		}
	}
	return loose
}

// parseSocket parses "0100007F:1F90": words in the machine's byte order, then the port.
func parseSocket(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, errors.New("not an address")
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	p, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), err
}

// holder returns the process that has a descriptor which links to target, 0 if none is found in time.
func (f *Finder) holder(target string) int {
	f.mu.Lock()
	recent := slices.Clone(f.recent)
	f.mu.Unlock()
	for _, pid := range recent {
		if f.holds(pid, target) {
			return pid
		}
	}
	dir, err := os.Open(f.proc)
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxProcesses)
	end := time.Now().Add(searchTime)
	for _, n := range slices.Backward(names) { // youngest first
		pid, err := strconv.Atoi(n)
		if err != nil || slices.Contains(recent, pid) {
			continue
		}
		if f.holds(pid, target) {
			f.remember(pid)
			return pid
		}
		if time.Now().After(end) {
			return 0
		}
	}
	return 0
}

func (f *Finder) holds(pid int, target string) bool {
	path := filepath.Join(f.proc, strconv.Itoa(pid), "fd")
	dir, err := os.Open(path)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxProcesses)
	return slices.ContainsFunc(names, func(n string) bool {
		l, err := os.Readlink(filepath.Join(path, n))
		return err == nil && l == target
	})
}

func (f *Finder) remember(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recent = slices.Insert(f.recent, 0, pid)
	f.recent = f.recent[:min(len(f.recent), recentPIDs)]
}

// Clean prepares text of untrusted programs for a line of a report: printable, one line, short.
func Clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s[:min(len(s), maxName)])
	if s == "" {
		return "?"
	}
	return s
}
