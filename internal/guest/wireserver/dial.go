package wireserver

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/cgroupfs"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wirehttp"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// dialTime bounds a connection to a port within the sandbox.
const dialTime = 10 * time.Second

// dial connects to a port or socket of the sandbox.
func (s *Server) dial(w http.ResponseWriter, r *http.Request) error {
	network, address := r.URL.Query().Get(wire.QueryNetwork), r.URL.Query().Get(wire.QueryAddress)
	if network != "tcp" && network != "unix" || address == "" {
		return &wire.Error{
			Code: wire.CodeBadRequest,
			Text: fmt.Sprintf("cannot connect to %q of %q: use tcp with host:port, or unix with a path", address, network),
		}
	}
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.DialContext(r.Context(), network, address)
	if err != nil {
		code := wire.CodeFailed
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
			code = wire.CodeRefused
		}
		return &wire.Error{Code: code, Text: err.Error()}
	}
	defer conn.Close()
	join(w, r, conn)
	return nil
}

// acceptProxied passes the connections to the sandbox's proxy to the handlers of PathProxied. Without a host that serves them they end.
func (s *Server) acceptProxied(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = s.config.Proxy.Close() })()
	for {
		conn, err := s.config.Proxy.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		select {
		case s.proxied <- conn:
		case <-time.After(dialTime):
			_ = conn.Close()
		case <-ctx.Done():
			_ = conn.Close()
		}
	}
}

// acceptPause keeps a guest without free descriptors from spinning.
const acceptPause = 50 * time.Millisecond

// proxy gives one connection to the sandbox's proxy to the host.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request) {
	if s.config.Proxy == nil {
		wirehttp.Error(w, &wire.Error{Code: wire.CodeUnsupported, Text: "this sandbox has no proxy"})
		return
	}
	select {
	case conn := <-s.proxied:
		s.lifecycle.busy(1)
		defer s.lifecycle.busy(-1)
		defer conn.Close()
		join(w, r, conn)
	case <-r.Context().Done():
	}
}

// join copies between a request's two bodies and a connection, until that ends or the client disconnects.
func join(w http.ResponseWriter, r *http.Request, conn net.Conn) {
	// A client that has closed its side and then disconnects would otherwise go unnoticed until there is data.
	defer context.AfterFunc(r.Context(), func() { _ = conn.Close() })()
	rc := http.NewResponseController(w)
	if err := rc.Flush(); err != nil {
		return // the client is gone
	}
	go func() {
		_, err := io.Copy(conn, r.Body)
		if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
		} else {
			_ = conn.Close()
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil || rc.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *Server) ports(w http.ResponseWriter, _ *http.Request) error {
	own := func(string, string) bool { return true }
	if s.config.SharedNetwork {
		sockets, user := openSockets(), ""
		if s.config.User != nil { // root here may not look at the user's processes; the user id is this sandbox's alone
			user = strconv.FormatUint(uint64(s.config.User.UID), 10)
		}
		own = func(uid, inode string) bool { return uid == user || sockets[inode] }
	}
	all := []wire.Port{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if errors.Is(err, os.ErrNotExist) {
			continue // this kernel lacks it
		}
		if err != nil {
			return wirehttp.Failed("list ports", err)
		}
		all = append(all, listening(f, own)...)
		_ = f.Close()
	}
	slices.SortFunc(all, func(a, b wire.Port) int {
		return strings.Compare(fmt.Sprintf("%05d %s", a.Port, a.Address), fmt.Sprintf("%05d %s", b.Port, b.Address))
	})
	return wirehttp.Document(w, slices.Compact(all))
}

// openSockets returns the inodes of the sockets of all visible processes.
func openSockets() map[string]bool {
	all := map[string]bool{}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is valid
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil {
			continue // it was closed meanwhile
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			all[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return all
}

// listening reads the listening sockets that are own from a kernel table: "n: address:port remote state queues timer
// retransmits uid timeout inode …".
func listening(r io.Reader, own func(uid, inode string) bool) (all []wire.Port) {
	const (
		listens = "0A"
		uid     = 7
		inode   = 9
	)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) <= inode || f[3] != listens || !own(f[uid], f[inode]) {
			continue
		}
		address, port, _ := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		b, herr := hex.DecodeString(address)
		if err != nil || herr != nil || len(b)%4 != 0 {
			continue
		}
		for i := 0; i < len(b); i += 4 {
			slices.Reverse(b[i : i+4])
		}
		if ip, ok := netip.AddrFromSlice(b); ok {
			all = append(all, wire.Port{Port: int(n), Address: ip.Unmap().String()})
		}
	}
	return all
}

// Files with the sandbox's own numbers, for both versions of control groups.
var (
	memoryFiles = []string{"/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}
	limitFiles  = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}
	pidsFiles   = []string{"/sys/fs/cgroup/pids.current", "/sys/fs/cgroup/pids/pids.current"}
)

func (s *Server) stats(w http.ResponseWriter, _ *http.Request) error {
	return wirehttp.Document(w, wire.Stats{
		MemoryBytes: firstNumber(memoryFiles), MemoryLimit: firstNumber(limitFiles), Processes: firstNumber(pidsFiles), CPUMicros: cpuMicros(),
	})
}

// firstNumber returns the number in the first file that has one, else -1.
func firstNumber(files []string) int64 {
	for _, f := range files {
		if n, err := cgroupfs.Number("", f); err == nil {
			return n
		}
	}
	return -1
}

func cpuMicros() int64 {
	if n, ok := cgroupfs.Counter("/sys/fs/cgroup/cpu.stat", "usage_usec"); ok {
		return n
	}
	if n := firstNumber([]string{"/sys/fs/cgroup/cpuacct/cpuacct.usage", "/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage"}); n >= 0 {
		return n / int64(time.Microsecond)
	}
	return -1
}
