package dockerd

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// What the resolver does not know itself is for Forward, and the answer comes back.
func TestResolver(t *testing.T) {
	forward := func(_ context.Context, network string, q []byte) []byte {
		var m dnsmessage.Message
		if m.Unpack(q) != nil || m.Questions[0].Name.String() != "elsewhere." {
			return nil
		}
		m.Response, m.RCode = true, dnsmessage.RCodeRefused
		m.Additionals = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.TXTResource{TXT: []string{network}},
		}}
		a, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		return a
	}
	r, err := listenDNS(t.Context(), netip.MustParseAddr("127.0.0.1"), 0, forward)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	r.set(map[string]netip.Addr{"Redis": netip.MustParseAddr("10.213.128.2")})
	for _, network := range []string{"udp", "tcp"} {
		for _, c := range []struct {
			name    string
			kind    dnsmessage.Type
			answers int
			rcode   dnsmessage.RCode
		}{
			{"rEdis.", dnsmessage.TypeA, 1, dnsmessage.RCodeSuccess},
			{"redis.", dnsmessage.TypeAAAA, 0, dnsmessage.RCodeSuccess},
			{"elsewhere.", dnsmessage.TypeA, 0, dnsmessage.RCodeRefused},
		} {
			m := ask(t, network, r.udp.LocalAddr().String(), query(t, c.name, c.kind))
			if len(m.Answers) != c.answers || m.RCode != c.rcode || m.ID != 7 {
				t.Errorf("%s %s %s: %+v", network, c.name, c.kind, m)
			}
			if c.rcode == dnsmessage.RCodeRefused && m.Additionals[0].Body.(*dnsmessage.TXTResource).TXT[0] != network {
				t.Errorf("forwarded as %+v", m.Additionals)
			}
		}
	}
	if got := r.own([]byte("nonsense")); got != nil {
		t.Error("answered nonsense")
	}
}

func ask(t *testing.T, network, to string, q []byte) (m dnsmessage.Message) {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), network, to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	var a []byte
	if network == "tcp" {
		if err := writeFrame(c, q); err != nil {
			t.Fatal(err)
		}
		if a, err = readFrame(c); err != nil {
			t.Fatal(err)
		}
	} else {
		if _, err := c.Write(q); err != nil {
			t.Fatal(err)
		}
		a = make([]byte, dnsPacket)
		n, err := c.Read(a)
		if err != nil {
			t.Fatal(err)
		}
		a = a[:n]
	}
	if err := m.Unpack(a); err != nil {
		t.Fatal(err)
	}
	return m
}

func query(t *testing.T, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
