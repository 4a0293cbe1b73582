package mcpserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-agent/sandbox-agent/internal/host/loopback"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
)

const token = "the-token-of-the-test"

// remembering is a runner whose sessions remember the code of all calls. "wait" runs until its end is asked for.
type remembering struct {
	echo
	began chan struct{} // one that waits

	mu       sync.Mutex
	sessions map[string]string
	left     []string
}

func (r *remembering) Run(ctx context.Context, q code.Request) (code.Result, error) {
	if q.Code == "wait" {
		r.began <- struct{}{}
		<-ctx.Done()
		return code.Result{}, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := q.Client + " " + q.Session
	r.sessions[key] += q.Code
	return code.Result{Stdout: r.sessions[key]}, nil
}

func (r *remembering) EndClient(_ context.Context, client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = append(r.left, client)
}

func (r *remembering) gone() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.left)
}

// served is a server at an address, until stop.
func served(t *testing.T) (r *remembering, addr string, stop func()) {
	t.Helper()
	r = &remembering{sessions: map[string]string{}, began: make(chan struct{}, 100)}
	l, err := loopback.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- New(Options{Runner: r}).Serve(ctx, l, token) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return r, l.Addr().String(), stop
}

// bearer shows the token.
type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return http.DefaultTransport.RoundTrip(r)
}

func dial(t *testing.T, addr string) *mcp.ClientSession {
	t.Helper()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "v1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + addr + Path, HTTPClient: &http.Client{Transport: bearer{}}, MaxRetries: -1,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func call(ctx context.Context, c *mcp.ClientSession, session, source string) (string, error) {
	got, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "run", Arguments: map[string]any{"env": "python", "code": source, "session": session}})
	if err != nil {
		return "", err
	}
	return got.Content[0].(*mcp.TextContent).Text, nil
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// Clients with the same name of a session have two, which end with them.
func TestClients(t *testing.T) {
	t.Parallel()
	r, addr, _ := served(t)
	a, b := dial(t, addr), dial(t, addr)
	for _, row := range []struct {
		c            *mcp.ClientSession
		source, want string
	}{{a, "x", "x"}, {b, "y", "y"}, {a, "z", "xz"}, {b, "z", "yz"}} {
		if got, err := call(t.Context(), row.c, "s", row.source); err != nil || got != row.want {
			t.Errorf("%q, not %q: %v", got, row.want, err)
		}
	}
	if err := a.Close(); err != nil { // it sends DELETE
		t.Error(err)
	}
	until(t, "the client's sessions were not ended", func() bool { return r.gone() == 1 })
	if got, err := call(t.Context(), b, "s", "!"); err != nil || got != "yz!" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestManyClients(t *testing.T) {
	t.Parallel()
	r, addr, stop := served(t)
	const many = 50
	var wg sync.WaitGroup
	for n := range many {
		wg.Go(func() {
			c := dial(t, addr)
			for k := range 5 {
				want := strings.Repeat(fmt.Sprint(n, ";"), k+1)
				if got, err := call(t.Context(), c, "s", fmt.Sprint(n, ";")); err != nil || got != want {
					t.Errorf("%q, not %q: %v", got, want, err)
				}
			}
		})
	}
	wg.Wait()
	stop()
	if r.gone() != many {
		t.Errorf("%d clients were left", r.gone())
	}
}

// A call ends with the session of its client, and with the server, and does not hold them up.
func TestEndInTheMiddle(t *testing.T) {
	t.Parallel()
	r, addr, stop := served(t)
	a, b := dial(t, addr), dial(t, addr)
	var calls sync.WaitGroup
	for _, c := range []*mcp.ClientSession{a, b} {
		calls.Go(func() { _, _ = call(t.Context(), c, "s", "wait") })
		<-r.began
	}
	began := time.Now()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+addr+Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set(sessionHeader, a.ID())
	if got, err := (&http.Client{Transport: bearer{}}).Do(q); err != nil || got.StatusCode != http.StatusNoContent {
		t.Errorf("%+v, %v", got, err)
	}
	until(t, "the client's sessions were not ended", func() bool { return r.gone() == 1 })
	stop()
	calls.Wait()
	if r.gone() != 2 || time.Since(began) > drainTime {
		t.Errorf("%d are gone after %s", r.gone(), time.Since(began))
	}
}

// A client that vanishes in the middle of a call costs the others nothing, and its session is there when it comes again.
func TestVanish(t *testing.T) {
	t.Parallel()
	r, addr, _ := served(t)
	c := dial(t, addr)
	ctx, cancel := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+Path, strings.NewReader(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"run","arguments":{"env":"python","code":"wait"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set(sessionHeader, c.ID())
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json, text/event-stream")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if got, err := (&http.Client{Transport: bearer{}}).Do(q); err == nil {
			_, _ = io.Copy(io.Discard, got.Body)
			_ = got.Body.Close()
		}
	}()
	<-r.began
	cancel()
	<-gone
	if got, err := call(t.Context(), c, "s", "x"); err != nil || got != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// What strangers, web pages and broken clients send.
func TestHostile(t *testing.T) {
	t.Parallel()
	r, addr, _ := served(t)
	type headers map[string]string
	good := headers{"Authorization": "Bearer " + token}
	with := func(name, value string) headers {
		return headers{"Authorization": "Bearer " + token, name: value}
	}
	for name, row := range map[string]struct {
		method, path, host, body string
		headers                  headers
		status                   int
	}{
		"well":              {headers: good, status: 200},
		"localhost":         {headers: good, host: "localhost:80", status: 200},
		"no token":          {status: 401},
		"another token":     {headers: headers{"Authorization": "Bearer " + token + "x"}, status: 401},
		"a password":        {headers: headers{"Authorization": "Basic " + token}, status: 401},
		"GET, no token":     {method: "GET", status: 401},
		"DELETE, no token":  {method: "DELETE", status: 401},
		"token in the path": {path: Path + "?token=" + token + "&access_token=" + token, status: 401},
		"rebound name":      {headers: good, host: "evil.example", status: 403},
		"rebound and port":  {headers: good, host: "evil.example:" + strings.Split(addr, ":")[1], status: 403},
		"a web page":        {headers: with("Origin", "https://evil.example"), status: 403},
		"a local web page":  {headers: with("Origin", "http://localhost:3000"), status: 403},
		"a sandboxed page":  {headers: with("Origin", "null"), status: 403},
		"a page's GET":      {method: "GET", headers: with("Origin", "https://evil.example"), status: 403},
		"a form":            {headers: with("Content-Type", "text/plain"), status: 415},
		"nothing":           {headers: good, body: " ", status: 400},
		"no JSON":           {headers: good, body: "{", status: 400},
		"no request":        {headers: good, body: `{"jsonrpc":"2.0"}`, status: 400},
		"deep":              {headers: good, body: strings.Repeat("[", 1<<20), status: 400},
		"unknown method":    {headers: good, body: `{"jsonrpc":"2.0","id":1,"method":"shutdown"}`, status: 400},
		"unknown session":   {headers: with(sessionHeader, "0123"), status: 404},
		"PUT":               {method: "PUT", headers: good, status: 405},
		"another path":      {path: "/", headers: good, status: 404},
		"discovery":         {method: "GET", path: "/.well-known/oauth-protected-resource", status: 404},
		"large":             {headers: good, body: strings.Repeat(" ", maxBody+1), status: 413},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if row.method == "" {
				row.method = "POST"
			}
			if row.path == "" {
				row.path = Path
			}
			if row.body == "" {
				row.body = hello
			}
			q, err := http.NewRequestWithContext(t.Context(), row.method, "http://"+addr+row.path, strings.NewReader(row.body))
			if err != nil {
				t.Fatal(err)
			}
			q.Host = row.host
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set("Accept", "application/json, text/event-stream")
			for k, v := range row.headers {
				q.Header.Set(k, v)
			}
			got, err := http.DefaultTransport.RoundTrip(q)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			if got.StatusCode != row.status || (got.Header.Get("WWW-Authenticate") != "") != (row.status == 401) {
				b, _ := io.ReadAll(got.Body)
				t.Errorf("%s, %v: %.300s", got.Status, got.Header, b)
			}
		})
	}
	t.Cleanup(func() {
		if len(r.sessions) != 0 {
			t.Errorf("something ran: %v", r.sessions)
		}
	})
}

// send writes to a connection and reads the status of the answer.
func send(t *testing.T, addr string, head string, body io.Reader) string {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	if body != nil {
		go func() { _, _ = io.Copy(c, body) }() // it is cut
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return strings.TrimSpace(line)
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// Bodies without an end, and headers.
func TestEndless(t *testing.T) {
	t.Parallel()
	_, addr, _ := served(t)
	head := "POST " + Path + " HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 104857600\r\n"
	if got := send(t, addr, head+"Authorization: Bearer "+token+"\r\n\r\n", endless{}); !strings.Contains(got, " 413 ") && got != "" {
		t.Errorf("100 MB: %q", got)
	}
	began := time.Now()
	if got := send(t, addr, head+"\r\n", nil); !strings.Contains(got, " 401 ") || time.Since(began) > time.Second {
		t.Errorf("a stranger whose body does not come: %q after %s", got, time.Since(began))
	}
	if got := send(t, addr, head+"X: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n", nil); !strings.Contains(got, " 431 ") && got != "" {
		t.Errorf("a header of %d bytes: %q", 2*maxHeader, got)
	}
	if testing.Short() {
		return
	}
	began = time.Now()
	if got := send(t, addr, "POST ", nil); got != "" && !strings.Contains(got, " 400 ") || time.Since(began) > 2*headerTime {
		t.Errorf("a slow header: %q after %s", got, time.Since(began))
	}
}

// Who is refused and goes on to send is not waited for.
func TestStrangersLeave(t *testing.T) {
	t.Parallel()
	_, addr, _ := served(t)
	for _, header := range []string{"", "Origin: http://example.invalid\r\nAuthorization: Bearer " + token + "\r\n"} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(c, "POST "+Path+" HTTP/1.1\r\nHost: "+addr+"\r\nContent-Length: 1000\r\n"+header+"\r\n"); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 40") {
			t.Errorf("%q, %v", b, err)
		}
	}
}

// Notifications by the thousand hold up nobody.
func TestFlood(t *testing.T) {
	t.Parallel()
	_, addr, _ := served(t)
	a, b := dial(t, addr), dial(t, addr)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 250 {
				_ = a.NotifyProgress(t.Context(), &mcp.ProgressNotificationParams{ProgressToken: "none", Progress: float64(n)})
			}
		})
	}
	for range 20 {
		if _, err := call(t.Context(), b, "", "x"); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if _, err := call(t.Context(), a, "", "x"); err != nil {
		t.Error(err)
	}
}
