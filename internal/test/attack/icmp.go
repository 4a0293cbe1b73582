package main

import (
	"context"
	"net"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// ping asks for an echo by a raw socket, or, where there is no right to one, by the
// kernel's own socket for it.
func ping(host string) (string, bool) {
	var c net.PacketConn
	var to net.Addr = &net.IPAddr{IP: net.ParseIP(host)}
	c, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "ip4:icmp", "0.0.0.0")
	if err != nil {
		p, perr := icmp.ListenPacket("udp4", "0.0.0.0")
		if perr != nil {
			return short(err) + ", " + short(perr), false
		}
		c, to = p, &net.UDPAddr{IP: net.ParseIP(host)}
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Seq: 1, Data: []byte("stolen data")}}
	b, err := m.Marshal(nil)
	if err != nil {
		return short(err), false
	}
	if _, err := c.WriteTo(b, to); err != nil {
		return short(err), false
	}
	buf := make([]byte, 1<<10)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return short(err), false
		}
		if r, err := icmp.ParseMessage(1, buf[:n]); err == nil && r.Type == ipv4.ICMPTypeEchoReply {
			return "an echo", true
		}
	}
}
