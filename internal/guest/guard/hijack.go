package guard

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	// lingerTime bounds how long a client may keep its side open after the engine has closed its own.
	lingerTime = 5 * time.Second
	// goneEvery is the interval of checks whether a client that has finished sending is gone.
	goneEvery = 500 * time.Millisecond
)

// protocols are those of the API's streams. The guard forwards one of these words, not the client's.
func protocol(r *http.Request) string {
	for _, p := range []string{"tcp", "h2c", "websocket"} {
		if strings.EqualFold(r.Header.Get("Upgrade"), p) {
			return p
		}
	}
	return ""
}

// hijack forwards a request after which the connection is a stream. Bytes that
// follow are passed on only once the engine reads no more requests from the connection.
func (g *Guard) hijack(w http.ResponseWriter, r *http.Request, req *request) {
	up, err := g.dial(r.Context())
	if err != nil {
		g.unavailable(w, r, err)
		return
	}
	defer up.Close()
	stop := context.AfterFunc(r.Context(), func() { up.Close() })
	defer stop()
	out := req.outgoing(r)
	proto := protocol(r)
	if proto != "" {
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", proto)
	}
	if err := out.Write(up); err != nil {
		g.unavailable(w, r, err)
		return
	}
	from := bufio.NewReader(up)
	resp, err := http.ReadResponse(from, out)
	if err != nil {
		g.unavailable(w, r, err)
		return
	}
	defer resp.Body.Close()
	if !isStream(resp, proto) {
		for k, v := range resp.Header {
			if k != "Connection" && k != "Upgrade" {
				w.Header()[k] = v
			}
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		g.unavailable(w, r, err)
		return
	}
	defer conn.Close()
	if !g.streams.hold(conn, up) {
		return
	}
	defer g.streams.drop(conn, up)
	stop() // the request's context does not apply to a stream
	if conn.SetDeadline(time.Time{}) != nil || writeHead(conn, resp) != nil {
		return
	}
	pump(pair{conn, buf.Reader}, pair{up, from})
}

// isStream reports whether the engine has turned the connection into a stream: it
// switched protocols as requested, or began an answer that only the connection's end delimits.
func isStream(resp *http.Response, proto string) bool {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return proto != ""
	}
	return resp.StatusCode == http.StatusOK && proto == "" && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 &&
		strings.HasPrefix(resp.Header.Get("Content-Type"), "application/vnd.docker.")
}

func writeHead(w io.Writer, resp *http.Response) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "HTTP/1.1 %s\r\n", resp.Status)
	if err := resp.Header.Write(b); err != nil {
		return err
	}
	if _, err := b.WriteString("\r\n"); err != nil {
		return err
	}
	return b.Flush()
}

// pair is a connection and what may hold some of its bytes already.
type pair struct {
	net.Conn
	from *bufio.Reader
}

// pump copies both ways until both sides have finished, or one is gone.
func pump(client, engine pair) {
	up, down := make(chan error, 1), make(chan error, 1)
	go func() { up <- copyStream(engine, client) }()
	go func() { down <- copyStream(client, engine) }()
	defer func() {
		// Goroutines that still copy end now.
		client.Close()
		engine.Close()
	}()
	var look <-chan time.Time
	for {
		select {
		case err := <-up:
			if err != nil || down == nil || gone(client.Conn) {
				return
			}
			t := time.NewTicker(goneEvery)
			defer t.Stop()
			look, up = t.C, nil
		case <-look:
			if gone(client.Conn) {
				return
			}
		case err := <-down:
			end := time.Now().Add(lingerTime)
			if err != nil || up == nil || client.SetReadDeadline(end) != nil || engine.SetWriteDeadline(end) != nil {
				return
			}
			down = nil
		}
	}
}

// copyStream copies to the end and passes the end on.
func copyStream(to, from pair) error {
	if _, err := io.CopyN(to.Conn, from.from, int64(from.from.Buffered())); err != nil {
		return err
	}
	if _, err := io.Copy(to.Conn, from.Conn); err != nil {
		return err
	}
	if c, ok := to.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return to.Close()
}
