package egress

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST.
const soOriginalDst = 80

// originalDst returns the original destination of a redirected connection.
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
	if err == nil {
		err = serr
	}
	if err != nil {
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
