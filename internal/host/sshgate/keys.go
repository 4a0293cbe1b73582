package sshgate

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
)

// maxKeys bounds a file of keys, in bytes: a thousand of them.
const maxKeys = 1 << 20

// fingerprint is the extension that names a client's key.
const fingerprint = "fingerprint"

// authorized lets a client in that has one of the keys.
func (s *Server) authorized(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	keys, err := s.o.Keys()
	if err != nil {
		s.o.Log.Error("read the keys that open the gateway", "error", err)
		return nil, err
	}
	shown := key.Marshal()
	for _, k := range keys {
		if bytes.Equal(k.Marshal(), shown) {
			return &ssh.Permissions{Extensions: map[string]string{fingerprint: ssh.FingerprintSHA256(key)}}, nil
		}
	}
	return nil, errors.New("the key is none of those that open the gateway")
}

// ReadKeys reads public keys, a line each as in OpenSSH's files. A line that it does not understand, or with options that it cannot hold, is an error: to
// let in without them would be more than was meant.
func ReadKeys(file string) ([]ssh.PublicKey, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKeys+1))
	if err == nil && len(b) > maxKeys {
		err = errors.New("it is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("read keys of %s: %w", file, err)
	}
	var keys []ssh.PublicKey
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err == nil && len(options) > 0 {
			err = errors.New("options of a key are not known here")
		}
		if _, ok := key.(*ssh.Certificate); ok {
			err = errors.New("it is a certificate, whose end and conditions are not held here: name its key")
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// HostKey is the key in a file that only its user can read. A file that is not there is made, with a new one.
func HostKey(file string) (ssh.Signer, error) {
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
	return io.ReadAll(io.LimitReader(f, maxKeys))
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
