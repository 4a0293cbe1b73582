// Package loopback has the address and token checks that servers for programs of this machine share.
package loopback

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Check refuses an address that another machine could reach.
func Check(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--listen %q: use a loopback address, such as 127.0.0.1:7070", addr)
	}
	return nil
}

// Listen listens on an address that Check accepted.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, exiterr.New(workorder.ExitPort, fmt.Errorf("listen on %s: %w", addr, err), "choose another port, or 0 for a free one")
	}
	return l, nil
}

// Bounds of a token, in bytes.
const (
	minToken = 16 // a shorter one can be guessed
	maxToken = 4 << 10
)

// CheckToken refuses a token that can be guessed or does not fit into a header.
func CheckToken(token string) error {
	if len(token) < minToken || len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("the token must be one word of at least %d letters, digits and signs", minToken)
	}
	return nil
}

// KeptToken reads the token in a file that only its user can read. It creates a missing file with a new token.
func KeptToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not block
	if errors.Is(err, fs.ErrNotExist) {
		if err := statedir.CreateFile(path, []byte(rand.Text()+"\n"), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("create the token file: %w", err)
		}
		f, err = os.Open(path)
	}
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if !st.Mode().IsRegular() || st.Mode().Perm()&0o077 != 0 {
		return "", exiterr.New(workorder.ExitUsage, fmt.Errorf("the token file %s can be read by others, or is not a regular file", path),
			"restrict it: `chmod 600 "+path+"`")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxToken+2))
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if err := CheckToken(token); err != nil {
		return "", exiterr.New(workorder.ExitUsage, fmt.Errorf("read %s: %w", path, err), "remove the file: a new token is created")
	}
	return token, nil
}

// Shows reports whether a request has the token. Otherwise it sets the answer's headers; status and body are the caller's.
func Shows(w http.ResponseWriter, r *http.Request, token string) bool {
	kind, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(kind, "Bearer") && subtle.ConstantTimeCompare([]byte(shown), []byte(token)) == 1 {
		return true
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	Refuse(w)
	return false
}

// strangerTime is how long a refused request's body is read.
const strangerTime = time.Second

// Refuse makes the connection end with the answer. The body is read for a moment: closing at once could lose the answer,
// and a body that never ends would block.
func Refuse(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangerTime)) // a test's recorder has none
}
