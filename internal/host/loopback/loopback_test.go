package loopback

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for addr, ok := range map[string]bool{
		"127.0.0.1:0": true, "127.0.0.2:7070": true, "[::1]:7070": true,
		"0.0.0.0:7070": false, ":7070": false, "[::]:7070": false, "192.168.0.1:7070": false, "localhost:7070": false, "7070": false, "": false, "[::ffff:10.0.0.1]:1": false,
	} {
		if err := Check(addr); (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestShows(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	for header, ok := range map[string]bool{
		"Bearer " + token: true, "bearer " + token: true,
		"": false, "Bearer": false, "Bearer ": false, "Bearer 0123456789abcdeF": false, token: false, "Basic " + token: false, "Bearer " + token + " ": false, "Bearer " + token[:15]: false,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		r.Header.Set("Authorization", header)
		if got := Shows(w, r, token); got != ok || (w.Header().Get("WWW-Authenticate") == "") != ok {
			t.Errorf("%q: %v", header, got)
		}
	}
}

func TestKeptToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made, err := KeptToken(filepath.Join(dir, "new"))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, "new")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if again, err := KeptToken(filepath.Join(dir, "new")); err != nil || again != made || CheckToken(made) != nil {
		t.Errorf("%q and %q, %v", made, again, err)
	}
	for name, content := range map[string]string{"empty": "", "short": "123", "two": "0123456789abcdef 0123456789abcdef", "long": strings.Repeat("a", maxToken+10), "control": "0123456789abcdef\x00"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := KeptToken(file); err == nil {
			t.Errorf("%s is a token", name)
		}
	}
	open := filepath.Join(dir, "open")
	if err := os.WriteFile(open, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := KeptToken(open); err == nil {
		t.Error("others can read it")
	}
	if _, err := KeptToken(dir); err == nil {
		t.Error("a folder is a token")
	}
}
