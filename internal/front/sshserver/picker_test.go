package sshserver

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/crypto/ssh"
)

// TestPicker: the keys choose, and what is typed behind the choice is the sandbox's.
func TestPicker(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for _, c := range []struct{ keys, want string }{
		{"\r", "dev"},
		{"jj\r", "other"},
		{"jjk\x1b[Bkj\r", "other"},
		{"/oth\r", "other"},
		{"/zz\r\x7f\x7fde\r", "dev"},
		{"q", ""},
		{"\x03", ""},
		{"nfresh\r", "fresh"},
		{"dnq", ""},
	} {
		in, seen, s := openPicker(t, g)
		for _, k := range strings.SplitAfter(c.keys, "") {
			if _, err := io.WriteString(in, k); err != nil {
				t.Fatal(err)
			}
		}
		if c.want != "" {
			seen.until(t, c.want+" 100x30 ")
			if _, err := io.WriteString(in, "abc\r"); err != nil {
				t.Fatal(err)
			}
			seen.until(t, "typed abc\r")
		}
		if err := s.Wait(); err != nil {
			t.Errorf("%q: %v", c.keys, err)
		}
		if i := bytes.IndexByte(seen.all, '\n'); i == 0 || i > 0 && seen.all[i-1] != '\r' {
			t.Errorf("%q: a bare line feed", c.keys)
		}
	}
	// A terminal without keys.
	s, err := g.client("x").NewSession()
	if err == nil {
		err = s.RequestPty("", 0, 0, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Output(""); err != nil {
		t.Error(err)
	}
}

// TestPickerRemoves: d asks before it removes, and the row goes; an error is shown.
func TestPickerRemoves(t *testing.T) {
	t.Parallel()
	var acts []act
	m := tea.Model(picker{rows: []SandboxInfo{{Name: "dev"}, {Name: "other"}}, known: true, act: func(a act) tea.Cmd {
		acts = append(acts, a)
		return nil
	}})
	press := func(keys string) {
		for _, k := range keys {
			m, _ = m.Update(tea.KeyPressMsg{Code: k, Text: string(k)})
		}
	}
	press("dndx")
	if len(acts) != 0 {
		t.Errorf("without a yes: %v", acts)
	}
	press("jdyq") // a key during the removal does nothing
	if want := []act{{"other", true}}; !slices.Equal(acts, want) {
		t.Errorf("%v, not %v", acts, want)
	}
	m, _ = m.Update(acted{act{"other", true}, errors.New("not saved")})
	if p := m.(picker); p.failure != "not saved" || len(p.rows) != 2 {
		t.Errorf("%q, %v", p.failure, p.rows)
	}
	m, _ = m.Update(acted{act{"other", true}, nil})
	if p := m.(picker); p.name() != "dev" || len(p.rows) != 1 {
		t.Errorf("at %q of %v", p.name(), p.rows)
	}
}

// openPicker opens the list and waits for its last row.
func openPicker(t *testing.T, g *gate) (in io.Writer, seen *watched, s *ssh.Session) {
	t.Helper()
	s, err := g.client("x").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	in, ierr := s.StdinPipe()
	out, oerr := s.StdoutPipe()
	if err := errors.Join(ierr, oerr, s.RequestPty("xterm", 30, 100, nil), s.Shell()); err != nil {
		t.Fatal(err)
	}
	seen = &watched{r: out}
	seen.until(t, "other")
	return in, seen, s
}

// TestPickerOfManyCells: the list on the largest terminal takes no more than on a usual one. Nothing runs beside it: it counts what is allocated.
func TestPickerOfManyCells(t *testing.T) {
	g := newGate(t)
	s, err := g.client("x").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	in, ierr := s.StdinPipe()
	out, oerr := s.StdoutPipe()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := errors.Join(ierr, oerr, s.RequestPty("xterm", 1<<20, 1<<20, nil), s.Shell()); err != nil {
		t.Fatal(err)
	}
	seen := &watched{r: out}
	seen.until(t, "other")
	if err := s.WindowChange(1<<19, 1<<19); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "q"); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	const most = 512 << 20
	if n := after.TotalAlloc - before.TotalAlloc; n > most {
		t.Errorf("%d bytes", n)
	}
}

// watched is output that is waited for.
type watched struct {
	r   io.Reader
	all []byte
}

func (w *watched) until(t *testing.T, want string) {
	t.Helper()
	b := make([]byte, 4096)
	for !bytes.Contains(w.all, []byte(want)) {
		n, err := w.r.Read(b)
		w.all = append(w.all, b[:n]...)
		if err != nil {
			t.Fatalf("no %q: %v\n%q", want, err, w.all)
		}
	}
}
