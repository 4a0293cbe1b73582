package credentials

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
)

// onForgeWithApp is a forge that lets the App 123 in, and a key of it as a file.
func onForgeWithApp(t *testing.T) (remote, host, keyFile string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	f := forgetest.New(forgetest.Options{Owner: "o", Name: "app", AppID: "123", AppKey: &key.PublicKey})
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	t.Cleanup(func() {
		for _, v := range f.Violations() {
			t.Error(v)
		}
	})
	keyFile = filepath.Join(t.TempDir(), "app.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(keyFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return srv.URL + "/o/app.git", strings.TrimPrefix(srv.URL, "http://"), keyFile
}

func TestGitHubApp(t *testing.T) {
	t.Parallel()
	remote, host, keyFile := onForgeWithApp(t)
	vars := map[string]string{appID: "123", appKeyFile: keyFile, "GH_HOST": host}
	f := New(func(k string) string { return vars[k] })
	cred, err := f.Git(t.Context(), remote)
	if err != nil || cred == nil || !strings.HasPrefix(cred.Token, "ghs_") || !cred.Renew {
		t.Fatalf("%+v, %v", cred, err)
	}
	if tok, err := f.Forge(t.Context(), remote, nil); err != nil || !strings.HasPrefix(tok.Token, "ghs_") || tok.From != "the GitHub App" || !tok.Renew {
		t.Errorf("%+v, %v", tok, err)
	}
	if app, err := f.App(); err != nil || app.ID != "123" || !strings.Contains(app.PrivateKey, "RSA PRIVATE KEY") {
		t.Errorf("%+v, %v", app, err)
	}
	// A token of the user's goes before it, and no other host is asked.
	vars["GH_TOKEN"] = "ghp_mine"
	if cred, err := f.Git(t.Context(), remote); err != nil || cred.Token != "ghp_mine" || cred.Renew {
		t.Errorf("%+v, %v", cred, err)
	}
	delete(vars, "GH_TOKEN")
	vars["GH_HOST"] = "ghe.example.com"
	if f.usesApp(remote) {
		t.Error("the App is used on a host that nobody called a GitHub")
	}
	if f.usesApp("http://github.com/o/app") || !f.usesApp("https://github.com/o/app") {
		t.Error("the App is used by plain HTTP in public, or not by HTTPS")
	}
	vars["GH_HOST"], vars[appID] = host, "124"
	if _, err := f.Git(t.Context(), remote); err == nil || !strings.Contains(err.Error(), "GitHub App") {
		t.Errorf("another App: %v", err)
	}
}

func TestGitHubAppMistakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		vars map[string]string
		says []string
	}{
		"no key":       {map[string]string{appID: "1"}, []string{appKey, appKeyFile}},
		"two keys":     {map[string]string{appID: "1", appKey: "x", appKeyFile: "y"}, []string{appKey, appKeyFile}},
		"no file":      {map[string]string{appID: "1", appKeyFile: "/nowhere/key"}, []string{"/nowhere/key"}},
		"all mistakes": {map[string]string{appID: "1", appInstallation: "x", appKeyFile: "/nowhere/key"}, []string{"/nowhere/key", appInstallation}},
		"a folder":     {map[string]string{appID: "1", appKeyFile: "/"}, []string{" /: "}},
	} {
		_, err := New(func(k string) string { return c.vars[k] }).App()
		for _, want := range c.says {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if app, err := New(func(string) string { return "" }).App(); app != nil || err != nil {
		t.Errorf("none is named: %+v, %v", app, err)
	}
}
