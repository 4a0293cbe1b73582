package provision

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "corp"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.crt": "A", "corp/b.crt": "B", "notes.txt": "no"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]byte{"a.crt": []byte("A"), "corp-b.crt": []byte("B")}
	if d := cmp.Diff(want, certificates(dir)); d != "" {
		t.Error(d)
	}
	if got := certificates(filepath.Join(dir, "absent")); len(got) != 0 {
		t.Errorf("a missing folder gives %v", got)
	}
}

func TestWithoutUser(t *testing.T) {
	for in, want := range map[string]string{
		"https://u:p@npm.example/path/": "https://npm.example/path/",
		"https://npm.example/":          "https://npm.example/",
		"undefined":                     "",
		"":                              "",
		"file:///srv/npm":               "",
	} {
		if got := withoutUser(in); got != want {
			t.Errorf("withoutUser(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestProxies(t *testing.T) {
	got := proxies([]string{"PATH=/bin", "http_proxy=http://p:1", "HTTPS_PROXY=http://q:2", "NO_PROXY=", "PROXY=x"})
	if d := cmp.Diff(map[string]string{"http_proxy": "http://p:1", "HTTPS_PROXY": "http://q:2"}, got); d != "" {
		t.Error(d)
	}
}
