package rootgit

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A secret's value in any commit keeps that commit off the remote, and in the bundle.
func TestSecretsAreNotPushed(t *testing.T) {
	t.Parallel()
	const value = "canary-1234567890"
	const slashed = "Sup3r/Secret+Token=42xyz"
	long := "f" + strings.Repeat("0123456789abcdef", 12)
	secrets := map[string]string{
		"NPM_TOKEN":   value,
		"NPM_TOKEN_2": slashed,
		"NPM_TOKEN_3": long,
		"SHORT":       "hello",
		"PUBLIC":      "in-the-base-42",
		"PUBLIC_2":    "docs/of/the-base",
	}
	commit := "; git add .; git commit -qm x"
	beside := func(name string) string { // a branch, beside a commit on the task's branch
		return "echo x >x" + commit + "; git checkout -qb '" + name + "'; echo y >y" + commit + "; git checkout -q -"
	}
	for name, c := range map[string]struct {
		agent  string
		allow  bool
		leaks  int
		pushed bool
	}{
		"in a file":          {"echo //r/:_authToken=" + value + " >.npmrc; git add .; git commit -qm x", false, 1, false},
		"in an older commit": {"echo " + value + " >a; git add .; git commit -qm x; git rm -q a; git commit -qm y", false, 1, false},
		"in a message":       {"git commit -q --allow-empty -m " + value + "; echo x >x; git add .; git commit -qm y", false, 1, false},
		"in a name":          {"echo x >" + value + "; git add .; git commit -qm x", false, 1, false},
		"in base64": {
			"echo " + base64.StdEncoding.EncodeToString([]byte("user:"+value)) + " >a; git add .; git commit -qm x", false,
			1, false,
		},
		"in binary":           {"printf '\\0\\1" + value + "\\0' >a; git add .; git commit -qm x", false, 1, false},
		"uncommitted":         {"echo " + value + " >a", false, 1, false},
		"allowed":             {"echo " + value + " >a; git add .; git commit -qm x", true, 1, true},
		"a placeholder":       {"echo sandbox-agent-placeholder-0123 >a; git add .; git commit -qm x", false, 1, true},
		"short":               {"echo hello >a; git add .; git commit -qm x", false, 0, true},
		"in the base already": {"echo in-the-base-42 again >>README; git add .; git commit -qm x", false, 0, true},
		"in a path":           {"mkdir -p p" + slashed + "; echo x >p" + slashed + "/x" + commit, false, 1, false},
		"in a path of a file whose content is known": {"mkdir Sup3r; cp README " + slashed + commit, false, 1, false},
		"in a path of directories whose content is known": {"mkdir -p a/Secret+Token=42xyz; echo x >a/Secret+Token=42xyz/x" + commit +
			"; git mv a Sup3r" + commit, false, 1, false},
		"in an uncommitted path": {"mkdir Sup3r; echo x >" + slashed, false, 1, false},
		"in a path that a merge adds": {"git checkout -qb m; mkdir Sup3r; echo x >" + slashed + commit +
			"; git checkout -q -; echo y >y" + commit + "; git merge -q m", false, 1, false},
		"in a path, allowed":                 {"mkdir Sup3r; echo x >" + slashed + commit, true, 1, true},
		"in a path of the base already":      {"echo x >docs/of/the-base/x" + commit, false, 0, true},
		"in a branch's name":                 {beside("side/" + value), false, 1, true},
		"in a branch's name, with a slash":   {beside("side/" + slashed), false, 1, true},
		"in a branch's name, in hexadecimal": {beside(hex.EncodeToString([]byte(slashed))), false, 1, true},
		"in a branch's name, in base64 with a slash": {
			beside("x/" + base64.StdEncoding.EncodeToString([]byte("??"+slashed))), false, 1,
			true,
		},
		"in a branch's name that is too long": {beside(long), false, 1, true},
		"in a tag's name": {"echo x >x" + commit + "; git checkout -q --detach; echo y >y" + commit +
			"; git tag v/" + slashed + "; git checkout -q -", false, 1, true},
		"in the name of a branch that is the only one moved": {"git checkout -qb '" + slashed + "'; echo y >y" + commit, false, 0, true},
		"on a branch beside it": {"echo x >x; git add .; git commit -qm x; git checkout -qb side; echo " + value +
			" >a; git add .; git commit -qm s; git checkout -q -", false, 1, true},
	} {
		if nightlyOnly(t, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, map[string]string{"README": "in-the-base-42\n", "docs/of/the-base/a": "a\n"})
			if c.allow {
				f.Repos.Order.PushSecrets = workorder.PushSecretsAllow
			}
			f.Guard(secrets)
			f.sh(t, c.agent)
			f.Saver.Save(t.Context(), true)
			l := f.land(t)
			refused := remote.SecretIn(l.Err) != nil
			if l.Pushed != c.pushed || refused == c.pushed || !c.pushed && l.Bundle == "" || len(f.Leaks(nil)) < c.leaks ||
				c.leaks == 0 && len(f.Leaks(nil)) > 0 ||
				len(f.Leaks(map[string]bool{})) > 0 {
				t.Fatalf("%+v; leaks %v", l, f.Leaks(nil))
			}
			bare := f.srv.Root + "/r.git"
			there := gittest.Git(t, bare, "log", "-p", "-m", "--all", "--format=%B", "--text") + gittest.Git(t, bare, "for-each-ref")
			if mask := redact.Whole(map[string]string{"1": value, "2": slashed, "3": long[:100]}); !c.allow && mask.String(there) != there {
				t.Errorf("the remote has it:\n%s", mask.String(there))
			}
			if strings.Contains(c.agent, "git checkout -q -") && !refused && l.Bundle == "" {
				t.Error("the commits beside the branch are lost")
			}
			if refused && (!strings.Contains(l.Err.Error(), "NPM_TOKEN") || strings.Contains(l.Err.Error(), value)) {
				t.Errorf("%v", l.Err)
			}
		})
	}
}
