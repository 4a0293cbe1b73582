package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// A guest that is no guest: each ends in an error, at once or at the client's own deadline.
func TestHostileStream(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"nothing and the end": "", "an HTTP/1 server": "HTTP/1.1 200 OK\r\n\r\n", "an engine's error": "Error response from daemon\n",
		"zeros": strings.Repeat("\x00", 1<<20), "noise": strings.Repeat("\xff\x01\x7f", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			go func() { _, _ = io.WriteString(theirs, says); theirs.Close() }()
			if _, err := wireclient.New(t.Context(), ours); !errors.Is(err, wireclient.ErrConnectionLost) {
				t.Errorf("%v", err)
			}
		})
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := wireclient.New(ctx, ours); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a guest that says nothing: %v", err)
	}
}

// A guest that speaks HTTP/2 and lies.
func TestHostileGuest(t *testing.T) {
	t.Parallel()
	exec := func(frames ...[]byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for _, f := range frames {
				_, _ = w.Write(f)
			}
		}
	}
	started := wire.AppendFrame(nil, wire.FrameStarted, []byte(`{"id":"x"}`))
	hello := `{"version":1}`
	for name, row := range map[string]struct {
		hello string
		exec  http.HandlerFunc
		want  error
	}{
		"another version":     {`{"version":2}`, nil, wireclient.ErrVersion},
		"no document":         {`{`, nil, wireclient.ErrConnectionLost},
		"an endless document": {`{"version":1,"dir":"` + strings.Repeat("x", wire.MaxDocument) + `"}`, nil, wireclient.ErrConnectionLost},
		"no frames":           {hello, exec(), wireclient.ErrConnectionLost},
		"no beginning":        {hello, exec(wire.AppendFrame(nil, wire.FrameStdout, []byte("x"))), wire.ErrFrame},
		"no end":              {hello, exec(started, wire.AppendFrame(nil, wire.FrameStdout, []byte("x"))), wireclient.ErrConnectionLost},
		"half a frame":        {hello, exec(started, []byte{3, 0, 0}), wireclient.ErrConnectionLost},
		"too large a frame":   {hello, exec(started, []byte{3, 255, 255, 255, 255}), wire.ErrFrame},
		"no exit in the exit": {hello, exec(started, wire.AppendFrame(nil, wire.FrameExit, []byte("7"))), wire.ErrFrame},
		"negative":            {hello, exec(started, wire.LostFrame(-5)), wire.ErrFrame},
		"an id that is none":  {hello, exec(wire.AppendFrame(nil, wire.FrameStarted, []byte(`{"id":"\u001b[2Jx"}`))), wire.ErrFrame},
		"no id":               {hello, exec(wire.AppendFrame(nil, wire.FrameStarted, []byte(`{}`))), wire.ErrFrame},
		"a code that is none": {hello, exec(started, wire.AppendFrame(nil, wire.FrameExit, []byte(`{"code":256}`))), wire.ErrFrame},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := wireclient.New(t.Context(), hostileStream(t, row.hello, wire.PathExec, row.exec))
			if err == nil {
				defer c.Close()
				var p *wireclient.Process
				if p, err = c.Start(t.Context(), sh("true"), nil); err == nil {
					_, err = p.Follow(t.Context(), nil, nil, nil)
				}
			}
			if !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
		})
	}
}

// What a guest says of commands is checked, and can be shown.
func TestHostileCommands(t *testing.T) {
	t.Parallel()
	for _, list := range []string{`[{"id":"../x"}]`, `[{"id":"a","output":-1}]`, `[{"id":"a","exit":{"code":-1}}]`, `{}`} {
		c := hostile(t, wire.PathExec, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) })
		if all, err := c.List(t.Context()); !errors.Is(err, wireclient.ErrConnectionLost) {
			t.Errorf("%s: %v, %v", list, all, err)
		}
	}
	c := hostile(t, wire.PathExec, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(wire.AppendFrame(wire.AppendFrame(nil, wire.FrameStarted, []byte(`{"id":"a"}`)), wire.FrameExit,
			[]byte(`{"code":127,"error":"\u001b[2Jx"}`)))
	})
	p, err := c.Start(t.Context(), sh("true"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Follow(t.Context(), nil, nil, nil); err != nil || exit.Code != 127 || strings.ContainsRune(exit.Error, 27) {
		t.Errorf("%+v, %v", exit, err)
	}
}

// A guest that lies about files.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	says := func(body, trailer string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if trailer != "" {
				w.Header().Set("Trailer", wire.TrailerEnd)
				defer w.Header().Set(wire.TrailerEnd, trailer)
			}
			_, _ = io.WriteString(w, body)
		}
	}
	file := func(name string) string { return `{"name":"` + name + `","type":"file"}` }
	n := 0
	endless := func(w http.ResponseWriter, _ *http.Request) {
		n++
		_, _ = fmt.Fprintf(w, `{"entries":[%s],"more":true}`, file(fmt.Sprintf("%09d", n)))
	}
	list := func(c *wireclient.Client) error {
		_, err := c.Files().List(t.Context(), wireclient.FileQuery{Path: "x"}, 100)
		return err
	}
	info := func(c *wireclient.Client) error {
		_, err := c.Files().Info(t.Context(), wireclient.FileQuery{Path: "x"})
		return err
	}
	read := func(c *wireclient.Client) error {
		f, err := c.Files().Open(t.Context(), wireclient.FileQuery{Path: "x"})
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(io.Discard, f)
		return err
	}
	watch := func(c *wireclient.Client) error {
		w, err := c.Files().Watch(t.Context(), wireclient.FileQuery{Path: "x"})
		if err != nil {
			return err
		}
		defer w.Close()
		_, err = w.Next()
		return err
	}
	change := func(doc string) http.HandlerFunc {
		return says(string(wire.AppendFrame(nil, wire.FrameChange, []byte(doc))), "")
	}
	whole, err := wire.TransferSummary{}.Trailer()
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := wire.TransferSummary{Error: &wire.Error{Code: "strange", Text: "\x1b[31mred\nline"}}.Trailer()
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		path string
		says http.HandlerFunc
		ask  func(*wireclient.Client) error
		want error
	}{
		"an endless list":          {wire.PathFilesList, endless, list, wireclient.ErrTooManyEntries},
		"a list that goes nowhere": {wire.PathFilesList, says(`{"entries":[],"more":true}`, ""), list, wireclient.ErrConnectionLost},
		"the same again":           {wire.PathFilesList, says(`{"entries":[`+file("a")+`],"more":true}`, ""), list, wireclient.ErrConnectionLost},
		"a name that leads up":     {wire.PathFilesList, says(`{"entries":[`+file("..")+`]}`, ""), list, wireclient.ErrConnectionLost},
		"a name that is a path":    {wire.PathFilesList, says(`{"entries":[`+file("a/b")+`]}`, ""), list, wireclient.ErrConnectionLost},
		"a name with a zero byte":  {wire.PathFilesList, says(`{"entries":[`+file(`a\u0000`)+`]}`, ""), list, wireclient.ErrConnectionLost},
		"a list without an end": {
			wire.PathFilesList, says(`{"entries":[`+strings.Repeat(file("a")+",", wire.MaxDocument/20), ""),
			list, wireclient.ErrConnectionLost,
		},
		"no name":                      {wire.PathFilesInfo, says(`{"type":"file"}`, ""), info, wireclient.ErrConnectionLost},
		"no type":                      {wire.PathFilesInfo, says(`{"name":"a"}`, ""), info, wireclient.ErrConnectionLost},
		"negative":                     {wire.PathFilesInfo, says(`{"name":"a","type":"file","size":-1}`, ""), info, wireclient.ErrConnectionLost},
		"content without an end":       {wire.PathFiles, says("x", ""), read, wireclient.ErrConnectionLost},
		"content with an end of noise": {wire.PathFiles, says("x", "noise"), read, wire.ErrFrame},
		"a negative end":               {wire.PathFiles, says("x", `{"files":-1}`), read, wire.ErrFrame},
		"an end that is huge":          {wire.PathFiles, says("x", whole+strings.Repeat("+", 1<<20)), read, wireclient.ErrConnectionLost},
		"a change above":               {wire.PathWatch, change(`{"type":"made","path":"../x"}`), watch, wire.ErrFrame},
		"a change elsewhere":           {wire.PathWatch, change(`{"type":"made","path":"/x"}`), watch, wire.ErrFrame},
		"a change of no type":          {wire.PathWatch, change(`{"type":"eaten"}`), watch, wire.ErrFrame},
		"a change that is no document": {wire.PathWatch, change("{"), watch, wire.ErrFrame},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := row.ask(hostile(t, row.path, row.says)); !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
		})
	}
	e, ok := errors.AsType[*wire.Error](read(hostile(t, wire.PathFiles, says("x", unknown))))
	if !ok || e.Code != wire.CodeFailed || strings.Contains(e.Text, "\x1b") {
		t.Errorf("an error at the end: %+v", e)
	}
	if err := read(hostile(t, wire.PathFiles, says("x", whole))); err != nil {
		t.Errorf("an honest one: %v", err)
	}
	cut := hostile(t, wire.PathFiles, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "some of it")
		panic(http.ErrAbortHandler)
	})
	if err := read(cut); !errors.Is(err, wireclient.ErrConnectionLost) {
		t.Errorf("a stream that is cut: %v", err)
	}
}

// hostile is a client of a guest that says what it wants to at one path.
func hostile(t *testing.T, path string, says http.HandlerFunc) *wireclient.Client {
	t.Helper()
	c, err := wireclient.New(t.Context(), hostileStream(t, `{"version":1}`, path, says))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func hostileStream(t *testing.T, hello, path string, says http.HandlerFunc) net.Conn {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc(wire.PathHello, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, hello) })
	if says != nil {
		mux.HandleFunc(path, says)
	}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: mux, Protocols: protocols}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
