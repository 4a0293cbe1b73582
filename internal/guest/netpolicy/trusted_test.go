package netpolicy

import "testing"

func TestHostOf(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"https://git.example.com/a/b.git":    "git.example.com",
		"http://user@git.example.com:8080/a": "git.example.com",
		"ssh://git@git.example.com:2222/a":   "git.example.com",
		"git@git.example.com:a/b.git":        "git.example.com",
		"git.example.com:a":                  "git.example.com",
		"https://[2001:db8::1]:8443/a":       "2001:db8::1",
		"/srv/git/a.git":                     "",
		"./a:b":                              "",
		"http://host.docker.internal:11434":  "host.docker.internal",
		"http://192.0.2.7:4000/v1":           "192.0.2.7",
	} {
		if got := hostOf(remote); got != want {
			t.Errorf("%s: %q, not %q", remote, got, want)
		}
	}
}
