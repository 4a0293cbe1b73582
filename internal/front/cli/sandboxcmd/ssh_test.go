package sandboxcmd

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The host is between ssh's options and what is the command's.
func TestSSHArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rest, want []string }{
		{nil, []string{"h"}},
		{[]string{"-N", "-L", "1:localhost:2"}, []string{"h", "-N", "-L", "1:localhost:2"}},
		{[]string{"--", "ls", "-l", "--", "x"}, []string{"h", "--", "ls", "-l", "--", "x"}},
		{[]string{"-t", "--", "top"}, []string{"-t", "h", "--", "top"}},
	} {
		if got := sshArguments("h", c.rest); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q", c.rest, got)
		}
	}
}

// A pipe that is silent keeps no connection open.
func TestPipes(t *testing.T) {
	t.Parallel()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	silent := struct{ io.Reader }{in} // without a Close that ends a Read, as standard input
	p := newPipes(silent, io.Discard)
	if _, err := out.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2)
	if n, err := p.Read(b); n != 1 || err != nil {
		t.Fatalf("%q, %v", b[:n], err)
	}
	ended := make(chan error)
	go func() {
		_, err := p.Read(b)
		ended <- err
	}()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a closed connection is read")
	}
}

// Without a file the user's own keys open the gateway, and no key is none at all.
func TestGatewayKeys(t *testing.T) {
	home := t.TempDir()
	f := cmdutil.New(cmdutil.IO{}, app.Env{Getenv: func(name string) string { return map[string]string{"HOME": home}[name] }})
	if _, err := gatewayKeys(f, ""); exiterr.Code(err) != workorder.ExitUsage {
		t.Errorf("no key: %v", err)
	}
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEbN8Wxz3LYF5PVzvTPYXxVWZgM0yVTSuNvOKLTtAOwU me\n"
	if err := os.Mkdir(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"a.pub": key, "b.pub": "of another program", "id": "private"} {
		if err := os.WriteFile(filepath.Join(home, ".ssh", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if keys, err := gatewayKeys(f, ""); err != nil || len(keys) != 1 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	// Without a home folder it is not where the gateway was started, which may be a repository of others.
	t.Chdir(home)
	if keys, err := gatewayKeys(cmdutil.New(cmdutil.IO{}, app.Env{Getenv: func(string) string { return "" }}), ""); exiterr.Code(err) != workorder.ExitUsage {
		t.Errorf("no home folder: %d keys, %v", len(keys), err)
	}
	if _, err := gatewayKeys(f, filepath.Join(home, ".ssh/b.pub")); exiterr.Code(err) != workorder.ExitUsage {
		t.Errorf("a file without a key: %v", err)
	}
}

func TestAtLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{"127.0.0.1": true, "::1": true, "localhost": true, "192.0.2.7": false, "gate.example": false, "0.0.0.0": false} {
		if atLoopback(host) != want {
			t.Error(host)
		}
	}
}
