package wire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// runCell runs code with nobody at the output but two buffers.
func runCell(t *testing.T, c *wireclient.Client, id, code string) (end wire.CellEnd, stdout string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	end, err = c.RunCell(t.Context(), id, wire.Cell{TimeoutMS: time.Minute.Milliseconds()}, strings.NewReader(code), &out, &errOut, nil)
	if !end.OK && err == nil {
		t.Logf("%.200q", errOut.String())
	}
	return end, out.String(), err
}

// Code of any length runs up to the bound, and what no interpreter can read is an error of the request or of the cell.
func TestSessionCode(t *testing.T) {
	t.Parallel()
	c := newGuest(t, nil).client(t)
	for driver, source := range map[string]string{
		wire.DriverPython: "#\nprint('end')", wire.DriverBash: "#\necho end",
		wire.DriverNode: "//\nconsole.log('end')",
	} {
		if s, err := c.OpenSession(t.Context(), wire.SessionSpec{ID: driver, Driver: driver}); err != nil || !s.Fresh {
			t.Fatalf("%+v, %v", s, err)
		}
		for _, size := range []int{0, 300 << 10, 20 << 20} {
			text := strings.Replace(source, "\n", strings.Repeat("x", size)+"\n", 1)
			if end, out, err := runCell(t, c, driver, text); err != nil || !end.OK || out != "end\n" {
				t.Errorf("%s, %d bytes: %+v, %.80q, %v", driver, size, end, out, err)
			}
		}
	}
	if _, _, err := runCell(t, c, wire.DriverBash, "echo \x00"); code(err) != wire.CodeBadRequest {
		t.Errorf("a zero byte for a shell: %v", err)
	}
	if end, _, err := runCell(t, c, wire.DriverPython, "print('\xff')"); err != nil || end.OK || end.Ended ||
		end.Error != "UnicodeDecodeError" {
		t.Errorf("no UTF-8: %+v, %v", end, err)
	}
	if _, _, err := runCell(t, c, wire.DriverPython, "x = 1\n"+strings.Repeat("#", wire.MaxCode)); code(err) != wire.CodeBadRequest {
		t.Errorf("too long: %v", err)
	}
	if end, out, err := runCell(t, c, wire.DriverPython, "print(1)"); err != nil || !end.OK || out != "1\n" {
		t.Errorf("after all that: %+v, %q, %v", end, out, err)
	}
	if _, _, err := runCell(t, c, "none", "1"); code(err) != wire.CodeNotFound {
		t.Errorf("no such session: %v", err)
	}
}

// Requests that no client of ours makes.
func TestSessionRequests(t *testing.T) {
	t.Parallel()
	g := newGuest(t, nil)
	if _, err := g.client(t).OpenSession(t.Context(), wire.SessionSpec{ID: "a", Driver: wire.DriverBash}); err != nil {
		t.Fatal(err)
	}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	raw := &http.Client{Transport: &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error,
	) {
		return (&net.Dialer{}).DialContext(ctx, "unix", g.socket)
	}}}
	t.Cleanup(raw.CloseIdleConnections)
	for name, row := range map[string]struct {
		method, path, body string
		want               int
	}{
		"no document":         {"POST", "/v1/sessions", "", http.StatusBadRequest},
		"a list":              {"POST", "/v1/sessions", "[]", http.StatusBadRequest},
		"no driver":           {"POST", "/v1/sessions", `{"id":"b"}`, http.StatusBadRequest},
		"an endless document": {"POST", "/v1/sessions", `{"id":"` + strings.Repeat("b", wire.MaxDocument) + `"}`, http.StatusBadRequest},
		"no cell":             {"POST", "/v1/sessions/a/run", "", http.StatusBadRequest},
		"another frame": {
			"POST", "/v1/sessions/a/run", string(wire.AppendFrame(nil, wire.FrameCommand, []byte("{}"))),
			http.StatusBadRequest,
		},
		"half a cell": {
			"POST", "/v1/sessions/a/run", string(wire.AppendFrame(nil, wire.FrameCell, []byte("{}")))[:5],
			http.StatusBadRequest,
		},
		"a cell that is none": {
			"POST", "/v1/sessions/a/run", string(wire.AppendFrame(nil, wire.FrameCell, []byte("[]"))),
			http.StatusBadRequest,
		},
		"less than no time": {
			"POST", "/v1/sessions/a/run",
			string(wire.AppendFrame(nil, wire.FrameCell, []byte(`{"timeout_ms":-1}`))), http.StatusBadRequest,
		},
		"an interrupt of none":   {"POST", "/v1/sessions/b/interrupt", "", http.StatusNotFound},
		"an end of none":         {"DELETE", "/v1/sessions/b", "", http.StatusNotFound},
		"a path that leads up":   {"DELETE", "/v1/sessions/..%2Fa", "", http.StatusNotFound},
		"an interrupt of nought": {"POST", "/v1/sessions/a/interrupt", "", http.StatusOK},
	} {
		r, err := http.NewRequestWithContext(t.Context(), row.method, "http://guest"+row.path, strings.NewReader(row.body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := raw.Do(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != row.want {
			t.Errorf("%s: %d, want %d", name, answer.StatusCode, row.want)
		}
	}
}

// A guest that lies about sessions.
func TestHostileSessions(t *testing.T) {
	t.Parallel()
	frame := func(kind wire.FrameType, doc string) []byte { return wire.AppendFrame(nil, kind, []byte(doc)) }
	for name, row := range map[string]struct {
		says []byte
		want error
	}{
		"nothing":                   {nil, wireclient.ErrConnectionLost},
		"no end":                    {frame(wire.FrameStdout, "x"), wireclient.ErrConnectionLost},
		"half an end":               {frame(wire.FrameCellEnd, "{}")[:6], wireclient.ErrConnectionLost},
		"an end of no document":     {frame(wire.FrameCellEnd, "7"), wire.ErrFrame},
		"a code that is none":       {frame(wire.FrameCellEnd, `{"code":256}`), wire.ErrFrame},
		"a display of no document":  {frame(wire.FrameDisplay, "{"), wire.ErrFrame},
		"a display that is a list":  {frame(wire.FrameDisplay, `{"data":[]}`), wire.ErrFrame},
		"a display without an end":  {wire.FrameHead(wire.FrameDisplay, 1<<31-1), wire.ErrFrame},
		"output longer than can be": {wire.FrameHead(wire.FrameStdout, wire.MaxOutputFrame+1), wire.ErrFrame},
		"another end":               {frame(wire.FrameExit, `{"code":0}`), wireclient.ErrConnectionLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := hostile(t, wire.PathSessionRun, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(row.says) })
			if end, err := c.RunCell(t.Context(), "a", wire.Cell{}, strings.NewReader(""), io.Discard, io.Discard, nil); !errors.Is(err, row.want) {
				t.Errorf("%+v, %v, want %v", end, err, row.want)
			}
		})
	}
	c := hostile(t, wire.PathSessionRun, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(frame(wire.FrameCellEnd, `{"code":1,"error":"\u001b[2JE","message":"\u001b]0;x\u0007"}`))
	})
	if end, err := c.RunCell(t.Context(), "a", wire.Cell{}, strings.NewReader(""), io.Discard, io.Discard, nil); err != nil ||
		end.Code != 1 || strings.ContainsAny(end.Error+end.Message, "\x1b\x07") {
		t.Errorf("%+v, %v", end, err)
	}
	for _, list := range []string{
		`{}`, `[{"id":"../x","driver":"bash"}]`, `[{"id":"a","driver":"perl"}]`,
		`[{"id":"a","driver":"bash","cells":-1}]`, `[` + strings.Repeat(`{"id":"a","driver":"bash"},`, wire.MaxDocument/20),
	} {
		c := hostile(t, wire.PathSessions, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) })
		if all, err := c.Sessions(t.Context()); !errors.Is(err, wireclient.ErrConnectionLost) {
			t.Errorf("%.80s: %v, %d", list, err, len(all))
		}
	}
	for _, answer := range []string{``, `{}`, `[]`, `{"id":"b","driver":"bash"}`, `{"id":"a","driver":"node"}`} {
		c := hostile(t, wire.PathSessions, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
		if s, err := c.OpenSession(t.Context(), wire.SessionSpec{ID: "a", Driver: wire.DriverBash}); !errors.Is(err, wireclient.ErrConnectionLost) {
			t.Errorf("%s: %v, %+v", answer, err, s)
		}
	}
}

// A writer that fails ends the call, and the cell with it.
func TestSessionWriter(t *testing.T) {
	t.Parallel()
	c := newGuest(t, nil).client(t)
	if _, err := c.OpenSession(t.Context(), wire.SessionSpec{ID: "a", Driver: wire.DriverBash}); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	began := time.Now()
	if _, err := c.RunCell(t.Context(), "a", wire.Cell{}, strings.NewReader("x=1; echo x; sleep 60"), unwritable{full}, io.Discard,
		nil); !errors.Is(err, full) {
		t.Error(err)
	}
	if end, out, err := runCell(t, c, "a", "echo $x"); err != nil || !end.OK || out != "1\n" || time.Since(began) > 10*time.Second {
		t.Errorf("%+v, %q, %v after %s", end, out, err, time.Since(began))
	}
}

type unwritable struct{ err error }

func (u unwritable) Write([]byte) (int, error) { return 0, u.err }
