//go:build boxtest

package egress_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// patience bounds everything that a client of these tests waits for; it is no
// measure of speed, but a refusal that takes so long counts as none.
const patience = 5 * time.Second

// The test binary is also the world outside and the clients in the box.
func TestMain(m *testing.M) {
	ctx := context.Background()
	switch os.Getenv("EGRESS_ROLE") {
	case "world":
		world(ctx)
	case "client":
		fmt.Println(client(ctx, os.Args[1:]))
	default:
		os.Exit(m.Run())
	}
}

// worldAddrs are what the world answers at; zone says which name has which.
var worldAddrs = []string{"203.0.113.1", "93.184.216.1", "93.184.216.2", "10.99.0.1", "169.254.169.254", "198.51.100.53", "2001:db8:2::1", "2001:db8:2::2"}

var zone = map[string][]string{
	"good.test": {"93.184.216.1"}, "dual.test": {"93.184.216.1", "2001:db8:2::1"}, "six.test": {"2001:db8:2::1"},
	"evil.test": {"93.184.216.2"}, "private.test": {"10.99.0.1"}, "a.b.wild.test": {"93.184.216.1"},
	"rebind.test": {"169.254.169.254"}, "self.test": {"203.0.113.2"}, "inner.test": {"10.213.1.2"}, "loop.test": {"127.0.0.1"},
	"synthetic.test": {"198.18.0.1"},
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// world serves until its standard input ends, and prints a line for each question of DNS.
func world(ctx context.Context) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	must(err)
	conf := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sni := "-"
		if r.TLS != nil {
			sni = r.TLS.ServerName
		}
		local := r.Context().Value(http.LocalAddrContextKey)
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			c, rw, err := w.(http.Hijacker).Hijack()
			must(err)
			defer c.Close()
			_, _ = c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
			line, _ := rw.ReadString('\n')
			fmt.Fprintf(c, "echo %s", line)
			return
		}
		fmt.Fprintf(w, "page host=%s sni=%s at=%v from=%s\n", r.Host, sni, local, r.RemoteAddr)
	})
	var lc net.ListenConfig
	quiet := log.New(io.Discard, "", 0)
	for _, port := range []string{"80", "8080", "443", "8443"} {
		l, err := lc.Listen(ctx, "tcp", ":"+port)
		must(err)
		if strings.Contains(port, "443") {
			l = tls.NewListener(l, conf)
		}
		go func() { must((&http.Server{Handler: page, ErrorLog: quiet}).Serve(l)) }()
	}
	l, err := lc.Listen(ctx, "tcp", ":22")
	must(err)
	go func() {
		for {
			c, err := l.Accept()
			must(err)
			go func() {
				defer c.Close()
				fmt.Fprintf(c, "banner at=%s\n", c.LocalAddr())
				all, _ := io.ReadAll(c) // until the client's end is closed
				fmt.Fprintf(c, "got %d bytes\n", len(all))
			}()
		}
	}()
	for _, a := range worldAddrs {
		for _, port := range []string{"443", "4000"} {
			u, err := lc.ListenPacket(ctx, "udp", net.JoinHostPort(a, port))
			must(err)
			go func() {
				buf := make([]byte, 1500)
				for {
					n, from, err := u.ReadFrom(buf)
					must(err)
					_, _ = u.WriteTo(buf[:n], from)
				}
			}()
		}
		serveDNS(ctx, a)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func serveDNS(ctx context.Context, addr string) {
	var lc net.ListenConfig
	u, err := lc.ListenPacket(ctx, "udp", net.JoinHostPort(addr, "53"))
	must(err)
	go func() {
		for {
			buf := make([]byte, 4096)
			n, from, err := u.ReadFrom(buf)
			must(err)
			_, _ = u.WriteTo(zoneAnswer(buf[:n]), from)
		}
	}()
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(addr, "53"))
	must(err)
	go func() {
		for {
			c, err := l.Accept()
			must(err)
			go func() {
				defer c.Close()
				var n [2]byte
				if _, err := io.ReadFull(c, n[:]); err != nil {
					return
				}
				q := make([]byte, binary.BigEndian.Uint16(n[:]))
				_, _ = io.ReadFull(c, q)
				a := zoneAnswer(q)
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
			}()
		}
	}()
}

func zoneAnswer(q []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(q) != nil || len(m.Questions) != 1 {
		return q
	}
	name := strings.TrimSuffix(m.Questions[0].Name.String(), ".")
	fmt.Println("dns", name)
	a := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	addrs, ok := zone[name]
	if !ok {
		a.RCode = dnsmessage.RCodeNameError
	}
	for _, s := range addrs {
		ip := netip.MustParseAddr(s)
		h := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 1}
		switch t := m.Questions[0].Type; {
		case ip.Is4() && t == dnsmessage.TypeA:
			a.Answers = append(a.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: ip.As4()}})
		case ip.Is6() && t == dnsmessage.TypeAAAA:
			a.Answers = append(a.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
		}
	}
	b, err := a.Pack()
	must(err)
	return b
}

// client does one thing and says in one line what came of it.
func client(ctx context.Context, args []string) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := act(ctx, args)
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "timeout: " + out + " " + err.Error()
	}
	if err != nil {
		return "error: " + out + " " + err.Error()
	}
	return "ok: " + out
}

func act(ctx context.Context, args []string) (string, error) {
	switch verb, args := args[0], args[1:]; verb {
	case "dns": // network server name type
		return askDNS(ctx, args[0], args[1], args[2], args[3])
	case "tls": // address sni
		c, err := dial(ctx, "tcp", args[0])
		if err != nil {
			return "", err
		}
		t := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: args[1]})
		if err := t.HandshakeContext(ctx); err != nil {
			return "handshake", err
		}
		fmt.Fprintf(t, "GET / HTTP/1.0\r\nHost: in-tls\r\n\r\n")
		b, err := io.ReadAll(t)
		return oneLine(b), err
	case "send": // address, what to send, quoted; everything that comes back
		c, err := dial(ctx, "tcp", args[0])
		if err != nil {
			return "", err
		}
		text, err := strconv.Unquote(`"` + args[1] + `"`)
		if err != nil {
			return "", err
		}
		if _, err := io.WriteString(c, text); err != nil {
			return "write", err
		}
		b, err := io.ReadAll(c)
		return oneLine(b), err
	case "websocket": // address host
		c, err := dial(ctx, "tcp", args[0])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", args[1])
		r := bufio.NewReader(c)
		for line := ""; line != "\r\n"; {
			if line, err = r.ReadString('\n'); err != nil {
				return line, err
			}
		}
		fmt.Fprint(c, "frame\n")
		line, err := r.ReadString('\n')
		return line, err
	case "banner": // address; half-closes after the first line
		c, err := dial(ctx, "tcp", args[0])
		if err != nil {
			return "", err
		}
		r := bufio.NewReader(c)
		first, err := r.ReadString('\n')
		if err != nil {
			return "", err
		}
		fmt.Fprint(c, "12345")
		_ = c.(*net.TCPConn).CloseWrite()
		rest, err := r.ReadString('\n')
		return strings.TrimSpace(first) + " " + strings.TrimSpace(rest), err
	case "banner-wait": // address; says what ends the connection after the banner
		c, err := dial(ctx, "tcp", args[0])
		if err != nil {
			return "", err
		}
		r := bufio.NewReader(c)
		first, err := r.ReadString('\n')
		fmt.Print(first)
		for err == nil { // the sealed kernel answers the next packet that is sent
			if _, err = c.Write([]byte("x")); err == nil {
				time.Sleep(time.Millisecond)
			}
		}
		return "", err
	case "udp": // address, and the port to send from
		c, err := dial(ctx, "udp", args[0], args[1:]...)
		if err != nil {
			return "", err
		}
		if _, err := c.Write([]byte("ping")); err != nil {
			return "", err
		}
		b := make([]byte, 100)
		n, err := c.Read(b)
		return string(b[:n]), err
	case "icmp": // network (udp4: a ping socket, ip4:icmp: a raw one) address
		return ping(args[0], args[1])
	case "listen": // address; says what the first connection says
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", args[0])
		if err != nil {
			return "", err
		}
		fmt.Println("listening")
		_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(12 * patience))
		for {
			c, err := l.Accept()
			if err != nil {
				return "", err
			}
			fmt.Fprintln(c, "hello from the box")
			c.Close()
		}
	}
	return "", fmt.Errorf("no such verb %q", args)
}

// dial connects, from a given port of UDP where one is named.
func dial(ctx context.Context, network, addr string, from ...string) (net.Conn, error) {
	var d net.Dialer
	for _, port := range from {
		a, err := net.ResolveUDPAddr(network, ":"+port)
		if err != nil {
			return nil, err
		}
		d.LocalAddr = a
	}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	end, _ := ctx.Deadline()
	return c, c.SetDeadline(end)
}

func oneLine(b []byte) string {
	return strings.Join(strings.Fields(string(b)), " ")
}

func askDNS(ctx context.Context, network, server, name, typ string) (string, error) {
	name, err := strconv.Unquote(`"` + name + `"`)
	if err != nil {
		return "", err
	}
	types := map[string]dnsmessage.Type{"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "HTTPS": 65, "TXT": dnsmessage.TypeTXT}
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: types[typ], Class: dnsmessage.ClassINET}},
	}
	b, err := q.Pack()
	if err != nil {
		return "", err
	}
	c, err := dial(ctx, network, server)
	if err != nil {
		return "", err
	}
	if network == "tcp" {
		b = append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
	}
	if _, err := c.Write(b); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return "", err
	}
	buf = buf[:n]
	if network == "tcp" {
		buf = buf[2:]
	}
	var a dnsmessage.Message
	if err := a.Unpack(buf); err != nil {
		return "", err
	}
	out := a.RCode.String()
	for _, r := range a.Answers {
		switch r := r.Body.(type) {
		case *dnsmessage.AResource:
			out += " " + netip.AddrFrom4(r.A).String()
		case *dnsmessage.AAAAResource:
			out += " " + netip.AddrFrom16(r.AAAA).String()
		}
	}
	return out, nil
}

func ping(network, addr string) (string, error) {
	c, err := icmp.ListenPacket(network, "0.0.0.0")
	if err != nil {
		return "", err
	}
	defer c.Close()
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 5, Seq: 1, Data: []byte("x")}}
	b, err := m.Marshal(nil)
	if err != nil {
		return "", err
	}
	var to net.Addr = &net.IPAddr{IP: net.ParseIP(addr)}
	if network == "udp4" {
		to = &net.UDPAddr{IP: net.ParseIP(addr)}
	}
	if _, err := c.WriteTo(b, to); err != nil {
		return "", err
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 1500)
	n, _, err := c.ReadFrom(buf)
	if err != nil {
		return "", err
	}
	r, err := icmp.ParseMessage(1, buf[:n])
	if err != nil {
		return "", err
	}
	if r.Type != ipv4.ICMPTypeEchoReply {
		return "", fmt.Errorf("%v", r.Type)
	}
	return "echo", nil
}
