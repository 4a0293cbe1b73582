//go:build e2e && bench

package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/crypto/ssh"
)

// TestBenchTerminals prints what the gateway costs beside OpenSSH's server on this machine, in the same minutes. It asserts nothing about time.
func TestBenchTerminals(t *testing.T) {
	u := rootsJail.user(t)
	name := u.sandbox("terminals")
	g, s := u.gate(), newSSHD(t)
	type server struct {
		addr   string
		config *ssh.ClientConfig
		client *ssh.Client
		keys   io.Writer
		screen io.Reader
	}
	servers := map[string]*server{
		"ours": {addr: "127.0.0.1:" + g.port, config: clientConfig(t, name, filepath.Join(g.dir, "key"))},
		"sshd": {addr: s.host + ":" + s.port, config: clientConfig(t, "root", s.path("user"))},
	}
	const cat = "stty raw -echo; printf ready; exec cat"
	for kind, s := range servers {
		var err error
		if s.client, err = ssh.Dial("tcp", s.addr, s.config); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		defer s.client.Close()
		if s.keys, s.screen, err = seat(s.client, cat); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if _, err := io.ReadFull(s.screen, make([]byte, len("ready"))); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
	took := samples{}
	timed := func(name string, f func() error) {
		t.Helper()
		took.timed(t, name, f)
	}
	const tries = 20
	for range tries {
		for kind, s := range servers {
			var c *ssh.Client
			timed("handshake "+kind, func() (err error) {
				c, err = ssh.Dial("tcp", s.addr, s.config)
				return err
			})
			_ = c.Close()
			timed("command "+kind, func() error {
				session, err := s.client.NewSession()
				if err != nil {
					return err
				}
				return session.Run("true")
			})
			for range tries {
				timed("key "+kind, func() error {
					if _, err := s.keys.Write([]byte("x")); err != nil {
						return err
					}
					_, err := io.ReadFull(s.screen, make([]byte, 1))
					return err
				})
			}
		}
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d.Microseconds())/1000) }
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "what the gateway costs (median of %d)\tms\tOpenSSH's\t×\taim\n", tries)
	for _, row := range []struct{ label, what, aim string }{
		{"handshake", "handshake", "≤ 1.3 ×"}, {"a command of a client that is there", "command", ""}, {"key to echo", "key", "≤ 3 ms"},
	} {
		ours, floor := median(took[row.what+" ours"]), median(took[row.what+" sshd"])
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%s\n", row.label, ms(ours), ms(floor), float64(ours)/float64(floor), row.aim)
	}
	_ = w.Flush()
	for range 9 {
		c, err := ssh.Dial("tcp", servers["ours"].addr, servers["ours"].config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, _, err := seat(c, cat); err != nil {
			t.Fatal(err)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("with 10 terminals the gateway has %s (aim: ≤ 40 MB)\n", strings.Join(strings.Fields(string(regexp.MustCompile(`VmRSS:(.*)`).FindSubmatch(status)[1])), " "))
}

func clientConfig(t *testing.T, user, key string) *ssh.ClientConfig {
	t.Helper()
	b, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(b)
	if err != nil {
		t.Fatal(err)
	}
	return &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()}
}

// seat runs a command in a terminal.
func seat(c *ssh.Client, line string) (keys io.Writer, screen io.Reader, err error) {
	s, err := c.NewSession()
	if err != nil {
		return nil, nil, err
	}
	if keys, err = s.StdinPipe(); err != nil {
		return nil, nil, err
	}
	if screen, err = s.StdoutPipe(); err != nil {
		return nil, nil, err
	}
	if err := s.RequestPty("xterm", 24, 80, nil); err != nil {
		return nil, nil, err
	}
	return keys, screen, s.Start(line)
}
