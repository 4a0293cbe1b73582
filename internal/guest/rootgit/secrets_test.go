package rootgit

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git/gittest"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A secret's value in any commit keeps that commit off the remote, and in the bundle.
func TestSecretsAreNotPushed(t *testing.T) {
	t.Parallel()
	const value = "canary-1234567890"
	secrets := map[string]string{"NPM_TOKEN": value, "SHORT": "hello", "PUBLIC": "in-the-base-42"}
	for name, c := range map[string]struct {
		agent  string
		allow  bool
		leaks  int
		pushed bool
	}{
		"in a file":             {"echo //r/:_authToken=" + value + " >.npmrc; git add .; git commit -qm x", false, 1, false},
		"in an older commit":    {"echo " + value + " >a; git add .; git commit -qm x; git rm -q a; git commit -qm y", false, 1, false},
		"in a message":          {"git commit -q --allow-empty -m " + value + "; echo x >x; git add .; git commit -qm y", false, 1, false},
		"in a name":             {"echo x >" + value + "; git add .; git commit -qm x", false, 1, false},
		"in base64":             {"echo " + base64.StdEncoding.EncodeToString([]byte("user:"+value)) + " >a; git add .; git commit -qm x", false, 1, false},
		"in binary":             {"printf '\\0\\1" + value + "\\0' >a; git add .; git commit -qm x", false, 1, false},
		"uncommitted":           {"echo " + value + " >a", false, 1, false},
		"allowed":               {"echo " + value + " >a; git add .; git commit -qm x", true, 1, true},
		"a placeholder":         {"echo sandbox-agent-placeholder-0123 >a; git add .; git commit -qm x", false, 1, true},
		"short":                 {"echo hello >a; git add .; git commit -qm x", false, 0, true},
		"in the base already":   {"echo in-the-base-42 again >>README; git add .; git commit -qm x", false, 0, true},
		"on a branch beside it": {"echo x >x; git add .; git commit -qm x; git checkout -qb side; echo " + value + " >a; git add .; git commit -qm s; git checkout -q -", false, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, map[string]string{"README": "in-the-base-42\n"})
			if c.allow {
				f.Repos.Order.PushSecrets = workorder.PushSecretsAllow
			}
			f.Remote.Guard(secrets)
			f.sh(t, c.agent)
			f.Save.Save(t.Context(), true)
			l := f.land(t)
			refused := remote.SecretIn(l.Err) != nil
			if l.Pushed != c.pushed || refused == c.pushed || !c.pushed && l.Bundle == "" || len(f.Remote.Leaks(nil)) < c.leaks || c.leaks == 0 && len(f.Remote.Leaks(nil)) > 0 || len(f.Remote.Leaks(map[string]bool{})) > 0 {
				t.Fatalf("%+v; leaks %v", l, f.Remote.Leaks(nil))
			}
			bare := f.srv.Root + "/r.git"
			there := gittest.Git(t, bare, "log", "-p", "-m", "--all", "--format=%B", "--text")
			if !c.allow && (strings.Contains(there, value) || strings.Contains(there, base64.StdEncoding.EncodeToString([]byte("user:" + value))[:12])) {
				t.Errorf("the remote has it:\n%s", there)
			}
			if refused && (!strings.Contains(l.Err.Error(), "NPM_TOKEN") || strings.Contains(l.Err.Error(), value)) {
				t.Errorf("%v", l.Err)
			}
		})
	}
}
