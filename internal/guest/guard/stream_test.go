package guard_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/guard"
)

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b := make([]byte, 1<<16)
			t.Fatalf("never: %s\n%s", what, b[:runtime.Stack(b, true)])
		}
	}
}

// upgraded serves a stream as the engine does.
func upgraded(serve func(net.Conn, *bufio.ReadWriter)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		if r.Header.Get("Upgrade") != "" {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		} else {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n")
		}
		serve(c, rw)
	}
}

// openStream sends a request and returns the connection and the answer's code.
func openStream(t *testing.T, f *fixture, req string) (*net.UnixConn, *bufio.Reader, *http.Response) {
	t.Helper()
	c := dialUnix(t, f.socket)
	if _, err := io.WriteString(c, req); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	r, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, br, r
}

const (
	attach  = "POST /containers/x/attach?stdin=1 HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
	attach0 = "POST /containers/x/attach?stdin=1 HTTP/1.1\r\nHost: d\r\n\r\n"
	execute = "POST /exec/x/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"Detach\":false}"
	session = "POST /session HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
	ws      = "GET /containers/x/attach/ws HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
)

// The client says all it has to say, early bytes included, and then still gets the answer.
func TestStreamHalfClose(t *testing.T) {
	e := newEngine(t, upgraded(func(c net.Conn, rw *bufio.ReadWriter) {
		b, _ := io.ReadAll(rw)
		_, _ = fmt.Fprintf(c, "got %d %s", len(b), b[:min(len(b), 5)])
	}))
	f := newGuard(t, e.path)
	big := strings.Repeat("y", 8<<20)
	for _, req := range []string{attach, attach0, execute, session, ws} {
		c, br, r := openStream(t, f, req+"early")
		if want := strings.Contains(req, "Upgrade:"); (r.StatusCode == 101) != want {
			t.Fatalf("%s: %s", req, r.Status)
		}
		if _, err := io.WriteString(c, big); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(br)
		if want := fmt.Sprintf("got %d early", len(big)+5); err != nil || string(b) != want {
			t.Fatalf("%q, %v; want %q", b, err, want)
		}
	}
}

// A client that is gone ends the engine's side, also when it had closed its input before.
func TestStreamClientGone(t *testing.T) {
	ended := make(chan struct{}, 10)
	e := newEngine(t, upgraded(func(c net.Conn, _ *bufio.ReadWriter) {
		_, _ = io.Copy(io.Discard, c) // the end of the input
		_ = c.(*net.UnixConn).SetReadDeadline(time.Now().Add(patience))
		for {
			if _, err := c.Write([]byte("x")); err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		ended <- struct{}{}
	}))
	f := newGuard(t, e.path)
	before := runtime.NumGoroutine()
	for _, half := range []bool{false, true} {
		c, _, _ := openStream(t, f, attach)
		if half {
			_ = c.CloseWrite()
		}
		_ = c.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("the engine's side stays open")
		}
	}
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// A silent stream whose client has closed its input and then died is found, too.
func TestStreamSilentClientGone(t *testing.T) {
	ended := make(chan struct{})
	e := newEngine(t, upgraded(func(c net.Conn, _ *bufio.ReadWriter) {
		_, _ = io.Copy(io.Discard, c)
		for !hungUp(c) {
			time.Sleep(time.Millisecond)
		}
		close(ended)
	}))
	f := newGuard(t, e.path)
	c, _, _ := openStream(t, f, attach)
	_ = c.CloseWrite()
	time.AfterFunc(10*time.Millisecond, func() { _ = c.Close() })
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the engine's side stays open")
	}
}

// hungUp reports whether writing fails; the other side must not have to read for it.
func hungUp(c net.Conn) bool {
	_, err := c.Write(nil)
	if err == nil {
		_, err = c.Write([]byte("."))
	}
	return err != nil
}

// Bytes behind an answer that is no stream are judged as the next request.
func TestNoSmuggling(t *testing.T) {
	e := newEngine(t, nil)
	f := newGuard(t, e.path)
	evil := "POST /swarm/init HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n"
	for name, first := range map[string]string{
		"attach":          attach,
		"attach plain":    attach0,
		"exec detached":   strings.Replace(execute, "Content-Length: 16\r\n\r\n{\"Detach\":false}", "Content-Length: 15\r\n\r\n{\"Detach\":true}", 1),
		"plain":           "GET /info HTTP/1.1\r\nHost: d\r\n\r\n",
		"upgrade on info": "GET /info HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
		"body of a get":   "GET /info HTTP/1.1\r\nHost: d\r\nContent-Length: 3\r\n\r\nabc",
		"chunked":         "POST /containers/x/wait HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"absolute":        "GET http://elsewhere/info HTTP/1.1\r\nHost: d\r\n\r\n",
		"expect":          "GET /info HTTP/1.1\r\nHost: d\r\nConnection: close2, X-Registry-Auth\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			rs := f.raw(t, first+evil, 2)
			if rs[0].StatusCode != http.StatusOK || rs[1].StatusCode != http.StatusForbidden {
				t.Fatalf("%s, then %s", rs[0].Status, rs[1].Status)
			}
			if strings.Contains(e.last().uri, "swarm") || strings.Contains(e.last().uri, "elsewhere") {
				t.Fatalf("forwarded %s", e.last().uri)
			}
		})
	}
	for name, bad := range map[string]string{
		"two lengths":       "POST /containers/x/wait HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n",
		"odd encoding":      "POST /containers/x/wait HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"space in a header": "POST /containers/x/wait HTTP/1.1\r\nHost: d\r\nContent-Length : 5\r\n\r\nabcde",
	} {
		r := f.raw(t, bad, 1)[0]
		if r.StatusCode < 400 {
			t.Errorf("%s: %s", name, r.Status)
		}
	}
	// The engine prefers a form in the body to the query.
	form := "networkmode=host"
	f.raw(t, fmt.Sprintf("POST /build HTTP/1.1\r\nHost: d\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", len(form), form), 1)
	if ct := e.last().header.Get("Content-Type"); ct != "application/x-tar" {
		t.Errorf("a form is forwarded as %q", ct)
	}
	if got := e.last().header.Get("Connection"); got != "close" {
		t.Errorf("connection to the engine: %q", got)
	}
}

// A body passes before all of it is there, and so does the answer.
func TestBodiesStream(t *testing.T) {
	e := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		br := bufio.NewReader(r.Body)
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "echo "+line)
			_ = rc.Flush()
		}
	})
	f := newGuard(t, e.path)
	pr, pw := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://d/build", pr)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(pw, "0\n") }()
	resp, err := f.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	br := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := br.ReadString('\n'); err != nil || line != fmt.Sprintf("echo %d\n", i) {
			t.Fatalf("%q %v", line, err)
		}
		if i < 2 {
			_, _ = fmt.Fprintf(pw, "%d\n", i+1)
		}
	}
	_ = pw.Close()
}

// A client that goes away in the middle of logs ends the engine's answer.
func TestAbort(t *testing.T) {
	ended := make(chan struct{})
	e := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "line\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	f := newGuard(t, e.path)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://d/containers/x/logs?follow=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, b); err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the engine goes on")
	}
	f.http.CloseIdleConnections()
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// An engine that is down is an error as Docker's, and one that comes back is found.
func TestEngineDown(t *testing.T) {
	dir := shortDir(t)
	f := newGuard(t, filepath.Join(dir, "none"))
	for _, req := range []string{"GET /info", attach} {
		if !strings.Contains(req, "HTTP") {
			req += " HTTP/1.1\r\nHost: d\r\n\r\n"
		}
		r := f.raw(t, req, 1)[0]
		if m := message(t, r); r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(m, filepath.Join(dir, "none")) {
			t.Fatalf("%s %s", r.Status, m)
		}
	}
	e := newEngine(t, nil)
	if err := os.Symlink(e.path, filepath.Join(dir, "none")); err != nil {
		t.Fatal(err)
	}
	if r := f.raw(t, "GET /info HTTP/1.1\r\nHost: d\r\n\r\n", 1)[0]; r.StatusCode != http.StatusOK {
		t.Fatal(r.Status)
	}
}

// Close ends streams that would go on for ever, and the socket is gone.
func TestClose(t *testing.T) {
	e := newEngine(t, upgraded(func(c net.Conn, _ *bufio.ReadWriter) { _, _ = io.Copy(io.Discard, c) }))
	f := newGuard(t, e.path)
	c, br, _ := openStream(t, f, attach)
	defer c.Close()
	f.Close()
	if _, err := io.Copy(io.Discard, br); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	if _, err := os.Stat(f.socket); err == nil {
		t.Error("the socket is still there")
	}
}

// More clients than there is room for wait, and come in when others leave.
func TestManyClients(t *testing.T) {
	e := newEngine(t, nil)
	f := newGuard(t, e.path)
	var idle []net.Conn
	for range 600 {
		idle = append(idle, dialUnix(t, f.socket))
	}
	got := make(chan *http.Response, 1)
	late := dialUnix(t, f.socket)
	go func() {
		_, _ = io.WriteString(late, "GET /info HTTP/1.1\r\nHost: d\r\n\r\n")
		r, _ := http.ReadResponse(bufio.NewReader(late), nil)
		got <- r
	}()
	for _, c := range idle {
		_ = c.Close()
	}
	if r := <-got; r == nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%v", r)
	}
}

// The answer to a refused upload arrives although the client is still sending.
func TestRefusedUpload(t *testing.T) {
	e := newEngine(t, nil)
	f := newGuard(t, e.path)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://d/build?networkmode=host", bytes.NewReader(make([]byte, 32<<20)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if m := message(t, resp); !strings.Contains(m, "rule network-host") {
		t.Fatal(m)
	}
}

func TestSocket(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "docker.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // what an earlier run left
		t.Fatal(err)
	}
	f := newGuard(t, filepath.Join(dir, "none"))
	fi, err := os.Stat(f.socket)
	if err != nil || fi.Mode() != os.ModeSocket|0o660 {
		t.Fatalf("%v %v", fi.Mode(), err)
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(f.socket), ".*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRoutes(t *testing.T) {
	dir := shortDir(t)
	v4, v6 := filepath.Join(dir, "4"), filepath.Join(dir, "6")
	write := func(p, s string) {
		if err := os.WriteFile(p, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(v4, "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"+
		"eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"+
		"eth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"+
		"br-1\t000012AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n")
	write(v6, "fd00000000000000000000000000000a 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000000 00000000 00000001 eth0\n")
	got, err := guard.ParseRoutes(v4, v6, func(s string) bool { return s == "br-1" })
	if err != nil || fmt.Sprint(got) != "[172.17.0.0/16 fd00::a/128]" {
		t.Fatal(got, err)
	}
	if got, err := guard.TakenByBox(); err != nil || len(got) == 0 {
		t.Fatal(got, err)
	}
}

// A missing source is made with the client's rights, and no link is followed.
func TestMakeDirAs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can act for others")
	}
	root := shortDir(t)
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := guard.MakeDirAs(root, root+"/a/b", 1000, 1000); err == nil {
		t.Error("made where the client may not")
	}
	if err := os.Chown(root, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if err := guard.MakeDirAs(root, root+"/a/b", 1000, 1000); err != nil {
		t.Error(err)
	}
	if err := os.Symlink("/etc", root+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := guard.MakeDirAs(root, root+"/link/guard-test", 0, 0); err == nil {
		t.Error("followed a link")
	}
	var own []string
	for _, p := range []string{"a", "a/b"} {
		fi, err := os.Stat(filepath.Join(root, p))
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, ownerOf(fi))
	}
	if fmt.Sprint(own) != "[1000:1000 1000:1000]" {
		t.Error(own)
	}
}
