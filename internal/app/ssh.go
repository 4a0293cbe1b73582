package app

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
)

const (
	hostKey    = "gateway.key"         // in the state directory
	knownHosts = "gateway.known_hosts" // in the state directory
	hostAlias  = "sandbox-agent"
	maxKey     = 1 << 20 // bytes
)

// HostKey returns the key of the SSH servers of this state directory. It creates one that is missing.
func (b Sandboxes) HostKey() (ssh.Signer, error) {
	dir, err := b.StateDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	return sshKey(filepath.Join(dir, hostKey))
}

// sshKey is the key in a file that only its user can read. A file that is not there is made, with a new one.
func sshKey(file string) (ssh.Signer, error) {
	b, err := readPrivate(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(file); err != nil && !errors.Is(err, fs.ErrExist) { // another gateway may be faster
			return nil, fmt.Errorf("make the gateway's key: %w", err)
		}
		b, err = readPrivate(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the gateway's key: %w", err)
	}
	key, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("read the gateway's key %s: %w", file, err)
	}
	return key, nil
}

// readPrivate reads a file that others cannot.
func readPrivate(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || st.Mode().Perm()&0o077 != 0) {
		err = fmt.Errorf("%s can be read by others, or is no file: `chmod 600` makes it your own", file)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxKey))
}

func makeKey(file string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "sandbox-agent gateway")
	if err != nil {
		return err
	}
	return statedir.CreateFile(file, pem.EncodeToMemory(block), 0o600)
}

// SSHOption is a line of ssh_config.
type SSHOption struct{ Key, Value string }

// SSHOptions returns the options with which OpenSSH's client reaches a sandbox that exists.
func (b Sandboxes) SSHOptions(ctx context.Context, name string) ([]SSHOption, error) {
	_, done, err := b.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	done()
	key, err := b.HostKey()
	if err != nil {
		return nil, err
	}
	dir, err := b.StateDir()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, knownHosts)
	line := []byte(knownhosts.Line([]string{hostAlias}, key.PublicKey()) + "\n")
	if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, line) {
		if err := statedir.WriteFile(file, line, 0o600); err != nil {
			return nil, fmt.Errorf("write the gateway's key for ssh: %w", err)
		}
	}
	exe, err := b.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	// The sandbox has to be found wherever ssh is started.
	words := []string{"env", "SANDBOX_AGENT_STATE_DIR=" + dir}
	if engine := b.Getenv("DOCKER_HOST"); engine != "" {
		words = append(words, "DOCKER_HOST="+engine)
	}
	words = append(words, exe, "ssh", "--stdio", name)
	percent := strings.NewReplacer("%", "%%")
	return []SSHOption{
		{"User", name},
		{"ProxyCommand", percent.Replace(CommandLine(words))},
		{"HostKeyAlias", hostAlias},
		{"UserKnownHostsFile", `"` + percent.Replace(file) + `"`},
		{"StrictHostKeyChecking", "yes"},
	}, nil
}
