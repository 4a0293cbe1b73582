package credentials

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// keyPair makes an SSH key of the kind.
func keyPair(t *testing.T, kind string) (ssh.Signer, string) {
	t.Helper()
	var key crypto.Signer
	var err error
	if kind == "ecdsa" {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	} else {
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

// sshServer lets in who has the key, and answers no command.
func sshServer(t *testing.T, user ssh.PublicKey, hostKeys ...ssh.Signer) (addr string) {
	t.Helper()
	conf := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(user.Marshal()) {
			return nil, errors.New("not this key")
		}
		return nil, nil
	}}
	for _, k := range hostKeys {
		conf.AddHostKey(k)
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, channels, requests, err := ssh.NewServerConn(conn, conf)
				if err != nil {
					return
				}
				go ssh.DiscardRequests(requests)
				for c := range channels {
					_ = c.Reject(ssh.Prohibited, "no commands here")
				}
			}()
		}
	}()
	return ln.Addr().String()
}

func TestSSHKeys(t *testing.T) {
	t.Parallel()
	user, userPEM := keyPair(t, "ed25519")
	_, strangerPEM := keyPair(t, "ed25519")
	first, _ := keyPair(t, "ecdsa") // what a client asks for by itself
	second, _ := keyPair(t, "ed25519")
	addr := sshServer(t, user.PublicKey(), first, second)
	line := func(k ssh.PublicKey) string { return knownhosts.Line([]string{addr}, k) + "\n" }
	for name, c := range map[string]struct {
		key, known string
		want       string // in the error
		next       string // in the hint
	}{
		"one kind known":   {userPEM, line(second.PublicKey()), "no commands here", ""}, // that far: both keys are right
		"both kinds known": {userPEM, line(first.PublicKey()) + line(second.PublicKey()), "no commands here", ""},
		"unknown host":     {userPEM, "", addr, "ssh-keyscan "},
		"other host key":   {userPEM, line(user.PublicKey()), addr, "known_hosts"},
		"revoked host key": {userPEM, "@revoked " + line(second.PublicKey()) + line(second.PublicKey()), "revoked", ""},
		"wrong key":        {strangerPEM, line(second.PublicKey()), addr, "SANDBOX_AGENT_SSH_KEY"},
		"broken hosts":     {userPEM, "what is this\n", "known_hosts:1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(func(string) string { return "" }).Check(t.Context(), "ssh://git@"+addr+"/app.git", "main", "",
				&workorder.GitCredential{SSHKey: c.key, KnownHosts: c.known})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(exiterr.Hint(err), c.next) {
				t.Errorf("got %v, want %q; hint %q, want %q", err, c.want, exiterr.Hint(err), c.next)
			}
			if name == "other host key" && strings.Contains(exiterr.Hint(err), "ssh-keyscan") {
				t.Errorf("the hint suggests to accept an unverified key: %q", exiterr.Hint(err))
			}
			if exiterr.Code(err) != workorder.ExitGit {
				t.Errorf("exit code %d", exiterr.Code(err))
			}
		})
	}
}

// A server that accepts the connection and says nothing does not hold the user.
func TestSilentSSHServer(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, key := keyPair(t, "ed25519")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = New(func(string) string { return "" }).Check(ctx, "ssh://git@"+ln.Addr().String()+"/app.git", "main", "", &workorder.GitCredential{SSHKey: key})
	if err == nil || !strings.Contains(err.Error(), checkTimeout.String()) {
		t.Errorf("got %v", err)
	}
}

func TestKeyscan(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"ssh://git@example.org:2222/a.git": "ssh-keyscan -p 2222 example.org",
		"ssh://example.org/a.git":          "ssh-keyscan example.org",
		"git@example.org:a.git":            "ssh-keyscan example.org",
	} {
		if got := keyscan(remote); got != want {
			t.Errorf("keyscan(%q) = %q, want %q", remote, got, want)
		}
	}
}
