// Package loopback is what servers for programs of this machine share: an address that no other machine reaches, and a
// token that each request shows.
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
		return fmt.Errorf("--listen %q: use an address of the loopback, as 127.0.0.1:7070", addr)
	}
	return nil
}

// Listen listens at an address that Check has passed.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, exiterr.New(workorder.ExitPort, fmt.Errorf("listen at %s: %w", addr, err), "take another port, or 0 for any that is free")
	}
	return l, nil
}

// Bounds of a token that somebody else made, in bytes.
const (
	minToken = 16 // what is shorter can be guessed
	maxToken = 4 << 10
)

// CheckToken refuses a token that a header cannot bring, or that can be guessed.
func CheckToken(token string) error {
	if len(token) < minToken || len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("the token is not %d or more letters, digits and signs in one word", minToken)
	}
	return nil
}

// KeptToken is the token in a file that only its user can read. A file that is not there is made, with a new one.
func KeptToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // something that blocks, as a pipe, is no file of a token
	if errors.Is(err, fs.ErrNotExist) {
		// another server may be faster
		if err := statedir.CreateFile(path, []byte(rand.Text()+"\n"), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make the token's file: %w", err)
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
		return "", exiterr.New(workorder.ExitUsage, fmt.Errorf("the token's file %s can be read by others, or is no file", path),
			"make it your own: `chmod 600 "+path+"`")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxToken+2))
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if err := CheckToken(token); err != nil {
		return "", exiterr.New(workorder.ExitUsage, fmt.Errorf("read %s: %w", path, err), "remove the file, and a new token is made")
	}
	return token, nil
}

// Shows reports whether a request shows the token. If it does not, it says so in the header of the answer, whose body
// and status are the caller's.
func Shows(w http.ResponseWriter, r *http.Request, token string) bool {
	kind, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(kind, "Bearer") && subtle.ConstantTimeCompare([]byte(shown), []byte(token)) == 1 {
		return true
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	Refuse(w)
	return false
}

// strangerTime is how long a stranger's body is waited for.
const strangerTime = time.Second

// Refuse has the connection of a stranger end with the answer. What they still send is read for a moment: the answer to
// one who still writes is lost where the connection is closed at once, and the rest of a body that never comes would be
// waited for without an end.
func Refuse(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangerTime)) // a test's recorder has none
}
