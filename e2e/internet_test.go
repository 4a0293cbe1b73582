//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// outside is the world as a box sees it: servers on this machine's address on the
// engine's bridge, names that lead there, and a memory of everything that arrived.
type outside struct {
	host     string
	modelURL string

	mu   sync.Mutex
	seen map[string]bool
}

// newOutside starts web servers on 80, 443 (TLS), 8443 and 853 (TLS), ones that
// speak first on 2222 and 2223, a registry on 5000, UDP on 443 and 9999, a name server on 53 and a model on a free port.
func newOutside(t *testing.T, canary, host string) *outside {
	t.Helper()
	o := &outside{host: host, seen: map[string]bool{}}
	quiet := log.New(io.Discard, "", 0)
	web := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/")
		if q := r.URL.Query().Get("dns"); q != "" {
			path = q
		}
		o.see(path)
		if r.Method == http.MethodConnect {
			http.Error(w, "no", http.StatusMethodNotAllowed)
			return
		}
		fmt.Fprintf(w, "pong /%s for %s", path, r.Host)
	})
	serve := func(port int, config *tls.Config, h http.Handler) {
		ln := o.listen(t, port)
		if config != nil {
			ln = tls.NewListener(ln, config)
		}
		s := &http.Server{Handler: h, ErrorLog: quiet, ReadHeaderTimeout: time.Minute}
		t.Cleanup(func() { _ = s.Close() })
		go func() { _ = s.Serve(ln) }()
	}
	config := &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}, MinVersion: tls.VersionTLS12}
	serve(80, nil, web)
	for _, port := range []int{443, 8443, 853} {
		serve(port, config, web)
	}
	// A registry: that anything at all arrived is all there is to know.
	serve(5000, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		o.see("pullregistry")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"errors":[{"code":"NAME_UNKNOWN","message":"arrived"}]}`)
	}))
	for _, port := range []int{2222, 2223} {
		o.greeter(t, o.listen(t, port))
	}
	for _, port := range []int{443, 9999} {
		o.echo(t, port)
	}
	o.names(t)
	o.model(t, canary)
	return o
}

func (o *outside) see(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[token] = true
}

func (o *outside) arrived() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string]bool{}
	for k := range o.seen {
		all[k] = true
	}
	return all
}

func (o *outside) listen(t *testing.T, port int) net.Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("%s:%d", o.host, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func (o *outside) packets(t *testing.T, port int) net.PacketConn {
	t.Helper()
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", fmt.Sprintf("%s:%d", o.host, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// greeter speaks first, as SSH does, and remembers the answer.
func (o *outside) greeter(t *testing.T, ln net.Listener) {
	t.Helper()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = io.WriteString(c, "hello\n")
				if line, err := bufio.NewReader(c).ReadString('\n'); err == nil {
					o.see(strings.TrimSpace(line))
				}
			}()
		}
	}()
}

func (o *outside) echo(t *testing.T, port int) {
	t.Helper()
	c := o.packets(t, port)
	go func() {
		buf := make([]byte, 2<<10)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			o.see(string(buf[:n]))
			_, _ = c.WriteTo(append([]byte("pong "), buf[:n]...), from)
		}
	}()
}

// names answers for the zone of the test; every label of a query is remembered.
func (o *outside) names(t *testing.T) {
	t.Helper()
	udp := o.packets(t, 53)
	go func() {
		buf := make([]byte, 4<<10)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			if a := o.answer(buf[:n]); a != nil {
				_, _ = udp.WriteTo(a, from)
			}
		}
	}()
	ln := o.listen(t, 53)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				var size [2]byte
				if _, err := io.ReadFull(c, size[:]); err != nil {
					return
				}
				q := make([]byte, int(size[0])<<8|int(size[1]))
				if _, err := io.ReadFull(c, q); err != nil {
					return
				}
				if a := o.answer(q); a != nil {
					_, _ = c.Write(append([]byte{byte(len(a) >> 8), byte(len(a))}, a...))
				}
			}()
		}
	}()
}

func (o *outside) answer(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	for label := range strings.SplitSeq(name, ".") {
		o.see("dns:" + label)
	}
	address := o.host
	switch name {
	case "rebind.wild.test":
		address = "169.254.169.254"
	case "loop.wild.test":
		address = "127.0.0.1"
	}
	m.Response, m.RecursionAvailable = true, true
	m.Additionals = nil
	switch {
	case !strings.HasSuffix(name, ".test"):
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		var a [4]byte
		copy(a[:], net.ParseIP(address).To4())
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}, Body: &dnsmessage.AResource{A: a}}}
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// model is a model's server that tells what it got when it is asked for "echo".
func (o *outside) model(t *testing.T, canary string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Model string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasPrefix(r.Header.Get("x-api-key"), canary) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if body.Model == "echo" {
			w.Header().Set("x-echo", r.Header.Get("x-api-key"))
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"type":"error","error":{"type":"invalid_request_error","message":"you sent %s"}}`, r.Header.Get("x-api-key"))
			return
		}
		fmt.Fprintf(w, `{"id":"m","type":"message","role":"assistant","model":%q,"content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`, body.Model)
	}))
	_ = s.Listener.Close()
	s.Listener = o.listen(t, 0)
	s.Start()
	t.Cleanup(s.Close)
	o.modelURL = s.URL
}

// knock tries to get into the box at the agent's port until done is called, and says what came of it.
func (o *outside) knock(t *testing.T, engine *client.Client) (done func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan string)
	go func() {
		tries, got := 0, ""
		for ctx.Err() == nil {
			time.Sleep(200 * time.Millisecond) // between tries, not for something
			boxes, err := engine.ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("label", workorder.LabelProject+"=attack"))})
			if err != nil {
				continue
			}
			for _, b := range boxes {
				for _, n := range b.NetworkSettings.Networks {
					if n.IPAddress == "" {
						continue
					}
					tries++
					c, err := (&net.Dialer{Timeout: 300 * time.Millisecond}).DialContext(ctx, "tcp", n.IPAddress+":7777")
					if err == nil {
						c.Close()
						got = "connected to " + n.IPAddress
					}
				}
			}
		}
		result <- fmt.Sprintf("%d tries %s", tries, got)
	}()
	return func() string {
		cancel()
		return <-result
	}
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outside"}, DNSNames: []string{"*.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
