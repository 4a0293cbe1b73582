package egress

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// attribute is one of a message of netlink.
func attribute(typ uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(nlaSize+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, typ), value...)
	return append(b, make([]byte, pad4(len(b))-len(b))...)
}

func logged(tb testing.TB, packet string, attrs ...[]byte) []byte {
	tb.Helper()
	payload, err := hex.DecodeString(packet)
	if err != nil {
		tb.Fatal(err)
	}
	body := make([]byte, nfgenSize)
	for _, a := range append(attrs, attribute(nflogPayload, payload)) {
		body = append(body, a...)
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(nlmsgHeader+len(body)))
	b = append(binary.NativeEndian.AppendUint16(b, nflogPacket), make([]byte, 10)...)
	return append(b, body...)
}

const (
	udpPacket  = "4500001c00004000401100000a0000025db8d8011388" + "01bb" + "00080000"
	icmpPacket = "6000000000083a40" + "20010db8000000000000000000000002" + "20010db8000200000000000000000001" + "8000000000050001"
)

func TestNFLog(t *testing.T) {
	b := append(logged(t, udpPacket, attribute(nflogPrefix, []byte("policy\x00")), attribute(nflogUID, []byte{0, 0, 3, 0xe8})),
		logged(t, icmpPacket, attribute(nflogPrefix, []byte("metadata\x00")), attribute(nflogInDevice, []byte{0, 0, 0, 7}))...)
	got := parseNFLog(b)
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	if p := got[0]; p.prefix != prefixPolicy || p.uid != 1000 || p.inner || p.protocol != "udp" || p.src.String() != "10.0.0.2:5000" || p.dst.String() != "93.184.216.1:443" {
		t.Errorf("%+v", p)
	}
	if p := got[1]; p.prefix != prefixMetadata || p.uid != -1 || !p.inner || p.protocol != "icmp" || p.dst.String() != "[2001:db8:2::1]:0" {
		t.Errorf("%+v", p)
	}
}

// FuzzNFLog: parts of a message are an untrusted packet.
func FuzzNFLog(f *testing.F) {
	f.Add(logged(f, udpPacket))
	f.Add(logged(f, icmpPacket))
	f.Add(logged(f, "4f"))
	f.Fuzz(func(_ *testing.T, b []byte) { parseNFLog(b) })
}

// A refusal says which policy refused, after a switch the one of then.
func TestReasonAfterSwitch(t *testing.T) {
	t.Parallel()
	e := newTestEgress(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: []string{"good.test"}}, nil)
	for port, mode := range []workorder.NetworkMode{workorder.NetworkRestricted, workorder.NetworkNone} {
		e.resolver.policy.Store(&policy{mode: mode})
		e.notePacket(refusedPacket{protocol: "tcp", dst: netip.AddrPortFrom(netip.MustParseAddr("203.0.113.9"), uint16(port+1))})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.events) != 2 || e.events[0].Fix == "" || e.events[1].Fix != "" {
		t.Errorf("%+v", e.events)
	}
}
