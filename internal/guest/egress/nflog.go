package egress

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/connowner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	nflogSubsystem = 4
	nflogPacket    = nflogSubsystem << 8
	nflogConfig    = nflogSubsystem<<8 | 1

	nflogCfgCmd    = 1
	nflogCfgMode   = 2
	nflogCfgBatch  = 5
	nflogCmdBind   = 1
	nflogCopyBytes = 2

	nflogInDevice = 4
	nflogPayload  = 9
	nflogPrefix   = 10
	nflogUID      = 11

	nlaTypeMask = 0x3fff // the two upper bits are flags
	nfgenSize   = 4
	nlaSize     = 4
	// nflogBuffer holds a batch of packets: the kernel sends at most a page or two.
	nflogBuffer = 64 << 10
	nlmsgDone   = 3
	nlmsgError  = 2
	nlmsgHeader = 16
)

// openNFLog subscribes to a group of the kernel's packet log, in this network namespace.
func openNFLog(group uint16) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*os.File, error) { unix.Close(fd); return nil, err }
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fail(err)
	}
	// The answers arrive at once; a silent kernel must not block the box.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return fail(err)
	}
	mode := binary.BigEndian.AppendUint32(nil, logBytes)
	for _, m := range [][]byte{
		nflogRequest(group, nflogCfgCmd, []byte{nflogCmdBind}),
		nflogRequest(group, nflogCfgMode, append(mode, nflogCopyBytes, 0)),
		// Report each packet at once, not a second later: its sender, and the box, may be gone by then.
		nflogRequest(group, nflogCfgBatch, binary.BigEndian.AppendUint32(nil, 1)),
	} {
		if err := netlinkCall(fd, m); err != nil {
			return fail(err)
		}
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(fd), "nflog"), nil
}

func nflogRequest(group, attr uint16, value []byte) []byte {
	ne := binary.NativeEndian
	b := ne.AppendUint32(nil, 0) // length, below
	b = ne.AppendUint16(b, nflogConfig)
	b = ne.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = append(b, make([]byte, 8)...) // sequence, port
	b = append(b, unix.AF_UNSPEC, 0)
	b = binary.BigEndian.AppendUint16(b, group)
	b = ne.AppendUint16(b, uint16(nlaSize+len(value)))
	b = ne.AppendUint16(b, attr)
	b = append(b, value...)
	b = append(b, make([]byte, pad4(len(b))-len(b))...)
	ne.PutUint32(b, uint32(len(b)))
	return b
}

func pad4(n int) int { return (n + 3) &^ 3 }

func netlinkCall(fd int, msg []byte) error {
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, nflogBuffer)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return err
		}
		if n < nlmsgHeader+4 {
			return errors.New("short answer from the kernel")
		}
		if binary.NativeEndian.Uint16(buf[4:]) != nlmsgError {
			continue // a packet of the group already
		}
		if e := int32(binary.NativeEndian.Uint32(buf[nlmsgHeader:])); e != 0 {
			return unix.Errno(-e)
		}
		return nil
	}
}

type refusedPacket struct {
	prefix   string
	uid      int // -1 if it is not from a process in the box's own network namespace
	inner    bool
	src, dst netip.AddrPort
	protocol string
}

// watch reports the packets that the kernel refuses, until the log is closed.
func (e *Egress) watch(l *os.File) {
	buf := make([]byte, nflogBuffer)
	for {
		n, err := l.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			if errors.Is(err, unix.ENOBUFS) {
				continue // some reports were lost; more will follow
			}
			e.cfg.Log.Warn("the log of refused packets ended", "error", err)
			return
		}
		for _, p := range parseNFLog(buf[:n]) {
			e.notePacket(p)
		}
	}
}

func parseNFLog(b []byte) []refusedPacket {
	var all []refusedPacket
	for len(b) >= nlmsgHeader {
		size := int(binary.NativeEndian.Uint32(b))
		typ := binary.NativeEndian.Uint16(b[4:])
		if size < nlmsgHeader+nfgenSize || size > len(b) || typ == nlmsgDone {
			return all
		}
		if typ == nflogPacket {
			if p, ok := parseLogged(b[nlmsgHeader+nfgenSize : size]); ok {
				all = append(all, p)
			}
		}
		b = b[min(pad4(size), len(b)):]
	}
	return all
}

func parseLogged(b []byte) (refusedPacket, bool) {
	p := refusedPacket{uid: -1}
	ok := false
	for len(b) >= nlaSize {
		size := int(binary.NativeEndian.Uint16(b))
		if size < nlaSize || size > len(b) {
			break
		}
		value := b[nlaSize:size]
		switch binary.NativeEndian.Uint16(b[2:]) & nlaTypeMask {
		case nflogInDevice:
			p.inner = true
		case nflogPrefix:
			p.prefix = strings.TrimRight(string(value), "\x00")
		case nflogUID:
			if len(value) == 4 {
				p.uid = int(binary.BigEndian.Uint32(value))
			}
		case nflogPayload:
			ok = p.packet(value)
		}
		b = b[min(pad4(size), len(b)):]
	}
	return p, ok
}

func (p *refusedPacket) packet(b []byte) bool {
	var src, dst netip.Addr
	var proto byte
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		src, dst, proto = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), b[9]
		b = b[min(int(b[0]&15)*4, len(b)):]
	case len(b) >= 40 && b[0]>>4 == 6:
		src, dst, proto = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[6]
		b = b[40:] // extension headers are rare and cost only the ports
	default:
		return false
	}
	var sport, dport uint16
	switch proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP, unix.IPPROTO_UDPLITE:
		if len(b) >= 4 {
			sport, dport = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		}
	}
	names := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "icmp"}
	if p.protocol = names[proto]; p.protocol == "" {
		p.protocol = strconv.Itoa(int(proto))
	}
	p.src, p.dst = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport)
	return true
}

func (e *Egress) notePacket(p refusedPacket) {
	a := attempt{host: p.dst.Addr().String(), port: p.dst.Port(), protocol: p.protocol, by: func() string { return e.sender(p) }}
	if n, ok := e.pool.name(p.dst.Addr()); ok {
		a.host = n
	}
	inForce := e.resolver.policy.Load()
	switch {
	case p.prefix == prefixMetadata:
		a.reason = "cloud metadata services are unreachable in every mode"
	case p.protocol == "tcp" && inForce.mode == workorder.NetworkRestricted:
		a.reason, a.rule = noRule, e.inForce().fix(a.host, a.port)
	case p.protocol == "tcp":
		a.reason = fmt.Sprintf("network: %s", inForce.mode)
	case inForce.learn:
		a.reason = "only TCP has names that rules can allow; UDP (QUIC too), ICMP and others are refused, also while learning"
	default:
		a.reason = fmt.Sprintf("network: %s lets no UDP (QUIC too), ICMP or other protocol out", inForce.mode)
	}
	e.ledger.note(a)
}

// sender identifies the sender of a packet if it can still be found.
func (e *Egress) sender(p refusedPacket) string {
	f := e.cfg.Origin
	if f == nil {
		f = connowner.New(nil, nil)
	}
	by := ""
	switch {
	case p.inner:
		by, _ = f.Container(p.src.Addr())
	case p.protocol == "tcp":
		by = f.TCP(p.src, p.dst)
	case p.protocol == "udp":
		by = f.UDP(p.src)
	}
	if by == "" && p.uid >= 0 {
		by = fmt.Sprintf("uid %d", p.uid)
	}
	return by
}

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST.
const soOriginalDst = 80

func originalDst(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	local, _ := c.LocalAddr().(*net.TCPAddr)
	level := unix.SOL_IP
	if local != nil && local.IP.To4() == nil {
		level = unix.SOL_IPV6
	}
	var dst netip.AddrPort
	var serr error
	err = raw.Control(func(fd uintptr) { dst, serr = getOriginalDst(int(fd), level) })
	if err = cmp.Or(err, serr); err != nil {
		return netip.AddrPort{}, fmt.Errorf("read the original destination: %w", err)
	}
	return dst, nil
}

func getOriginalDst(fd, level int) (netip.AddrPort, error) {
	var sa [unix.SizeofSockaddrInet6]byte
	size := uint32(len(sa))
	// x/sys has no getsockopt that returns a socket address.
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), soOriginalDst,
		uintptr(unsafe.Pointer(&sa[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return netip.AddrPort{}, errno
	}
	port := binary.BigEndian.Uint16(sa[2:])
	if level == unix.SOL_IP {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), port), nil
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(sa[8:24])).Unmap(), port), nil
}
