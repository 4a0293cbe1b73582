package rootgit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// spy is a program that a work tree names: it writes down who it is, and all that it and its caller hold.
const spy = `#!/bin/sh
{ echo "uid $(id -u)"; env; tr '\0' '\n' </proc/$PPID/environ; tr '\0' ' ' </proc/$PPID/cmdline
for f in /proc/$PPID/fd/* /proc/self/fd/*; do test -f "$f" && cat "$f"; done; } >>%MARK% 2>/dev/null
cat 2>/dev/null
exit 0
`

// However a work tree is made, nothing that it names runs where the credential is, and the work lands. Where
// these tests run as root, the agent is another user, and what it names never runs as root.
func TestHostileRepositories(t *testing.T) {
	t.Parallel()
	const allHooks = `for h in applypatch-msg pre-applypatch ` +
		`pre-commit prepare-commit-msg commit-msg post-commit pre-push pre-rebase post-checkout post-merge post-rewrite \
	post-index-change reference-transaction push-to-checkout ` +
		`pre-receive update post-receive post-update proc-receive pre-auto-gc fsmonitor-watchman sendemail-validate; do
	mkdir -p "$1"; cp "$SPY" "$1/$h"; done`
	for name, tc := range map[string]struct {
		script string
		runs   bool // the filter's command runs, as the agent's user
	}{
		"hooks":      {"set -- .git/hooks; " + allHooks, false},
		"hooks path": {`set -- "$HOME/hooks"; git config core.hooksPath "$HOME/hooks"; ` + allHooks, false},
		"programs of the configuration": {`
for k in core.fsmonitor core.sshCommand core.askPass ` +
			`core.editor core.pager core.gitProxy diff.external sequence.editor gpg.program gpg.ssh.program gpg.x509.program \
	remote.origin.uploadpack remote.origin.receivepack ` +
			`pack.packObjectsHook uploadpack.packObjectsHook interactive.diffFilter core.alternateRefsCommand; do git config "$k" "$SPY"; done
git config credential.helper "!$SPY"; git config "credential.$URL.helper" "!$SPY"; git config commit.gpgSign true; ` +
			`git config tag.gpgSign true; git config push.gpgSign true; git config gpg.format ssh
for a in add commit push update-index write-tree rev-parse; do git config alias.$a "!$SPY"; done`, false},
		"another remote": {`
git config remote.origin.url "ext::$SPY"; git config remote.origin.pushurl "ext::$SPY"; git config remote.origin.vcs ext; ` +
			`git config protocol.ext.allow always; git config protocol.allow always
git config "url.ext::$SPY.insteadOf" "$URL"; git config "url.ext::$SPY.pushInsteadOf" "$URL"; ` +
			`git config http.proxy http://127.0.0.1:1; git config http.sslVerify false
git config http.extraHeader "X: y"; git config http.cookieFile "$HOME/c"; git config http.saveCookies true; ` +
			`git config push.default nothing; git config remote.pushDefault evil`, false},
		"included configuration": {`
printf '[core]\n\tfsmonitor = %s\n\tsshCommand = %s\n\thooksPath ` +
			`= %s\n[credential]\n\thelper = !%s\n' "$SPY" "$SPY" "$HOME/hooks" "$SPY" >"$HOME/inc"
git config include.path "$HOME/inc"; git config "includeIf.gitdir:/.path" "$HOME/inc"; ` +
			`git config "includeIf.onbranch:**.path" "$HOME/inc"; git config "includeIf.hasconfig:remote.*.url:**.path" "$HOME/inc"
git config extensions.worktreeConfig true; git config --worktree core.fsmonitor "$SPY"; cp "$HOME/inc" "$HOME/.gitconfig"; ` +
			`mkdir -p "$HOME/.config/git"; cp "$HOME/inc" "$HOME/.config/git/config"
set -- "$HOME/hooks"; ` + allHooks, false},
		"diff and merge drivers": {`
git config diff.x.textconv "$SPY"; git config diff.x.command "$SPY"; git config merge.x.driver "$SPY"; ` +
			`git config merge.tool "$SPY"; git config diff.x.cachetextconv true
echo '* diff=x merge=x' >.gitattributes; mkdir -p .git/info; echo '* diff=x merge=x' >.git/info/attributes`, false},
		"filters": {`
git config filter.lfs.clean "$SPY"; git config filter.lfs.smudge "$SPY"; git config filter.lfs.required true; ` +
			`git config lfs.customtransfer.x.path "$SPY"; git config lfs.standalonetransferagent x
git config lfs.url "ext::$SPY"; printf '[lfs]\n\turl = ext::%s\n[lfs "customtransfer.x"]\n\tpath = %s\n' "$SPY" "$SPY" >.lfsconfig; ` +
			`echo '* filter=lfs' >.gitattributes`, true},
		"a filter that is a process": {`git config filter.p.process "$SPY"; git config filter.p.required true; ` +
			`echo '* filter=p' >.gitattributes`, true},
		"submodules": {`
printf '[submodule "s"]\n\tpath = s\n\turl = ext::%s\n\tupdate ` +
			`= !%s\n[submodule "-u"]\n\tpath = -u\n\turl = -u%s\n' "$SPY" "$SPY" "$SPY" >.gitmodules
git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),s; git config submodule.s.url "ext::$SPY"; ` +
			`git config submodule.s.update "!$SPY"; git config submodule.s.active true
git config submodule.recurse true; git config push.recurseSubmodules on-demand; git config fetch.recurseSubmodules true; ` +
			`git config protocol.ext.allow always; git config status.submoduleSummary true
mkdir s; cd s; git init -q; git config core.fsmonitor "$SPY"; git config credential.helper "!$SPY"; set -- .git/hooks; ` + allHooks +
			`; echo x >f; git add f; git -c core.hooksPath=/dev/null commit -qm s`, false},
		"a repository inside": {`git init -q in; cd in; git config core.fsmonitor "$SPY"; git config core.sshCommand "$SPY"; ` +
			`git config filter.z.clean "$SPY"; echo '* filter=z' >.gitattributes
set -- .git/hooks; ` + allHooks + `; echo x >f`, true},
		"another git folder": {`mv .git "$HOME/g"; echo "gitdir: $HOME/g" >.git; git config core.fsmonitor "$SPY"; ` +
			`set -- "$HOME/g/hooks"; ` + allHooks, false},
		"a linked git folder": {`mv .git "$HOME/g"; ln -s "$HOME/g" .git; set -- "$HOME/g/hooks"; ` + allHooks, false},
		"another work tree":   {`git config core.worktree "$ROOTS"; git config core.bare true; set -- .git/hooks; ` + allHooks, false},
		"alternates of root's": {`mkdir -p .git/objects/info; ` +
			`printf '%s\n%s\n/proc/self/fd\n' "$ROOTS/objects" /root/.git/objects >.git/objects/info/alternates`, false},
		"alternates that are a secret": {`mkdir -p .git/objects/info; ln -s "$ROOTS/secret" .git/objects/info/alternates`, false},
		"refs that are garbage": {`mkdir -p .git/refs/heads/x .git/refs/replace; h=$(git rev-parse HEAD); ` +
			`ln -s "$ROOTS/secret" .git/refs/heads/y; echo "ref: refs/heads/../../../secret" >.git/refs/heads/z
mkdir -p .git/info; echo garbage >.git/info/grafts; echo $h >.git/refs/replace/$h`, false},
		"names of refs": {`mkdir -p ".git/refs/heads/--upload-pack=$(basename "$SPY")"; git update-ref "refs/heads/-x" HEAD || true; ` +
			`git rev-parse HEAD >".git/refs/heads/--exec=x"; git commit -q --allow-empty -m "--exec=$SPY"`, false},
		"names of files": {`echo x >"--exec=spy"; echo x >-u; echo x >'$(id)'; echo x >'` + "`id`" + `'; echo x >"HEAD"; echo x >"a
b"`, false},
	} {
		if nightlyOnly(t, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			h := newEvil(t, f)
			h.run(t, tc.script)
			h.run(t, "echo u >u")
			saved := f.Saver.Save(t.Context(), true)
			t.Logf("saved: %v, %v", saved.SnapErr, saved.PushErr)
			left := f.Committer.Commit(t.Context(), says("leftovers"))
			l := f.Lander.Land(t.Context(), f.base, f.bundle, nil)
			t.Logf("left: %v; landed: %+v", left, l)
			if l.Err != nil || !strings.Contains("\n"+f.tree(t, l.Head)+"\n", "100644 u\n") {
				t.Errorf("not landed: %v", l.Err)
			}
			h.check(t, f, tc.runs)
		})
	}
}

// evil is an agent that means harm, in a fixture whose agent is another user where that can be.
type evil struct {
	*fixture
	mark, spy, roots string
	env              []string
}

const rootsSecret = "s3cret-of-root"

func newEvil(t *testing.T, f *fixture) *evil {
	t.Helper()
	dir := t.TempDir()
	h := &evil{fixture: f, mark: filepath.Join(dir, "mark"), spy: filepath.Join(dir, "spy"), roots: filepath.Join(dir, "roots")}
	for file, content := range map[string]string{h.mark: "", h.spy: strings.ReplaceAll(spy, "%MARK%", h.mark)} {
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(h.mark, 0o666); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, "init", "-q", "--bare", h.roots)
	if err := os.WriteFile(filepath.Join(h.roots, "secret"), []byte(rootsSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(h.roots, 0o700); err != nil {
		t.Fatal(err)
	}
	h.env = append(
		f.Repos.Identity(),
		"PATH="+os.Getenv("PATH"),
		"SPY="+h.spy,
		"ROOTS="+h.roots,
		"URL="+f.Repos.Order.CloneURL,
		"GIT_CONFIG_NOSYSTEM=1",
	)
	if os.Getuid() != 0 {
		return h
	}
	// nobody may not enter the tests' directories, and gets a work tree and a home.
	f.Repos.User = &proc.Credential{UID: 65534, GID: 65534}
	for _, d := range []string{dir, f.Repos.Workspace, f.Repos.Home, f.Repos.Dir} {
		for up := d; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
			if err := os.Chmod(up, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := proc.Output(
		t.Context(),
		proc.Spec{Argv: []string{"chown", "-R", "65534:65534", f.Repos.Workspace, f.Repos.Home}},
	); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *evil) run(t *testing.T, script string) {
	t.Helper()
	if _, err := proc.Output(
		t.Context(),
		proc.Spec{Argv: []string{"/bin/bash", "-ec", script}, Dir: h.Repos.Workspace, Env: h.env, User: h.Repos.User},
	); err != nil {
		t.Fatal(err)
	}
	// Programs that the agent ran itself do not count.
	if err := os.Truncate(h.mark, 0); err != nil {
		t.Fatal(err)
	}
}

// check looks at what ran, and for the credential and root's secret wherever the agent, or anybody who reads the remote, can look.
func (h *evil) check(t *testing.T, f *fixture, runs bool) {
	t.Helper()
	f.Heartbeat.Stop() // it makes files where we look for secrets, and takes them away
	seen, err := os.ReadFile(h.mark)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) > 0 && !runs {
		t.Errorf("a program that the work tree names ran:\n%.600s", seen)
	}
	if h.Repos.User != nil && slices.Contains(strings.Split(string(seen), "\n"), "uid 0") {
		t.Errorf("a program that the work tree names ran as root:\n%.600s", seen)
	}
	told := string(seen)
	for _, e := range f.seen() {
		told += e.Text + "\n"
	}
	for _, secret := range []string{token, rootsSecret} {
		if strings.Contains(told, secret) {
			t.Errorf("%s was reported", secret)
		}
		for _, dir := range []string{f.Repos.Workspace, f.Repos.Dir, f.Repos.Home, f.srv.Root} {
			err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				b, err := os.ReadFile(p)
				if strings.Contains(string(b), secret) {
					t.Errorf("%s lies in %s", secret, p)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for ref := range strings.Lines(gittest.Git(t, f.srv.Root+"/r.git", "for-each-ref", "--format=%(refname)")) {
		if ref = strings.TrimSpace(
			ref,
		); ref != "refs/heads/main" && ref != "refs/heads/"+target &&
			!strings.HasPrefix(ref, workorder.TaskRefs("T-A1B2C3D4")) {
			t.Errorf("%s was pushed", ref)
		}
	}
	if got := f.remote(t, "refs/heads/main"); got != f.base {
		t.Errorf("main is %s", got)
	}
}
