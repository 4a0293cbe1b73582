package sshserver

import (
	"container/list"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

func TestStrangers(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	asked := false
	for name, methods := range map[string][]ssh.AuthMethod{
		"another key": {ssh.PublicKeys(newKey(t))},
		"no key":      {},
		"a password":  {ssh.Password("x")},
		"questions": {ssh.KeyboardInteractive(func(string, string, []string, []bool) ([]string, error) {
			asked = true
			return nil, nil
		})},
	} {
		if c, err := g.dial("dev", methods...); err == nil {
			_ = c.Close()
			t.Errorf("%s opens the gateway", name)
		}
	}
	if asked {
		t.Error("the gateway asks questions")
	}
	if c, err := g.dial(strings.Repeat("u", 1<<20)); err == nil {
		_ = c.Close()
		t.Error("a user name of 1 MB")
	}
	if out, _, code := g.run(strings.Repeat("u", 1<<10), "", ""); code != 0 || out == "" {
		t.Errorf("a user name of 1 KB: %d", code)
	}
	// A key that is taken away is out at once.
	g.key = newKey(t)
	if _, _, code := g.run("dev", "exit 3", ""); code != 3 {
		t.Errorf("the new key: %d", code)
	}
}

// TestFlood: a thousand strangers who say nothing keep nobody out.
func TestFlood(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	var all []net.Conn
	for range 1000 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", g.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
	}
	if _, _, code := g.run("dev", "exit 5", ""); code != 5 {
		t.Errorf("%d", code)
	}
	ended := make(chan struct{}, len(all))
	for _, conn := range all {
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			ended <- struct{}{}
		}()
	}
	soon := time.After(handshakeTime / 2) // all are let go in the end
	for n := range len(all) - maxPending {
		select {
		case <-ended:
		case <-soon:
			t.Fatalf("%d strangers are held", len(all)-n)
		}
	}
	c := g.client("dev")
	var sessions []*ssh.Session
	for range maxChannels {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	if _, err := c.NewSession(); err == nil {
		t.Error("no bound of channels")
	}
	_ = sessions[0].Close()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if s, err := c.NewSession(); err == nil {
			_ = s.Close()
			break
		}
		if time.Now().After(until) {
			t.Fatal("a channel that has ended still counts")
		}
	}
}

// TestVictim: who has sent nothing makes room first, then who is of the address that has most, then the oldest.
func TestVictim(t *testing.T) {
	t.Parallel()
	for all, want := range map[string]int{ // of each its peer, with ! once it has sent something
		"a a a": 0, "a! a a!": 1, "a! b! c": 2, "a a b b b": 2, "a! a! a! b c c": 4, "a! b! b!": 1,
	} {
		s := &Server{pending: list.New()}
		var elements []*list.Element
		for c := range strings.FieldsSeq(all) {
			peer, greeted := strings.CutSuffix(c, "!")
			elements = append(elements, s.pending.PushBack(&stranger{peer: peer, greeted: greeted}))
		}
		if got := slices.Index(elements, s.victim()); got != want {
			t.Errorf("%q: %d makes room", all, got)
		}
	}
}

// TestSlow: a stranger who takes too long is let go.
func TestSlow(t *testing.T) {
	t.Parallel()
	s := New(Options{HostKey: newKey(t), Sandboxes: &fake{}, Log: slog.New(slog.DiscardHandler)})
	s.patience = 50 * time.Millisecond
	ours, theirs := joined(t)
	go s.stranger(t.Context(), theirs, s.pend(theirs))
	if _, err := io.WriteString(ours, "SSH-2.0-slow\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = ours.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(ours); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it is held")
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := newKey(t)
	line := string(ssh.MarshalAuthorizedKey(key.PublicKey()))
	cert := &ssh.Certificate{Key: key.PublicKey(), CertType: ssh.UserCert, ValidBefore: 1} // of long ago
	if err := cert.SignCert(rand.Reader, key); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]int{
		"": 0, "# comment\n\n" + line: 1, line + line + "\n": 2, "no key\n": -1, line + "nothing": -1, "command=\"true\" " + line: -1, "cert-authority " + line: -1,
		"no-touch-required " + line: -1, string(ssh.MarshalAuthorizedKey(cert)): -1, strings.Repeat(line, maxKeys/len(line)+1): -1,
	} {
		keys := filepath.Join(dir, "authorized")
		if err := os.WriteFile(keys, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadKeys(keys); (err != nil) != (want < 0) || err == nil && len(got) != want {
			t.Errorf("%.60q: %d keys, %v", content, len(got), err)
		}
	}
}
