package proof_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/runner/proof"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const report = `<testsuite name="s" tests="1"><testcase classname="roots" name="secret"/></testsuite>`

// TestHostileRepository: everything by which a repository, its work tree or the user's home can name a
// program is there, and none of it runs while a checkout is made; what the tests themselves do, they do as the user.
func TestHostileRepository(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a.txt": "1\n"})
	dir := filepath.Dir(b.Home)
	mark, evil := filepath.Join(dir, "mark"), filepath.Join(dir, "evil")
	b.put(mark, "")
	if err := os.Chmod(mark, 0o666); err != nil {
		t.Fatal(err)
	}
	b.put(evil, "#!/bin/sh\necho \"$0 $* as $(id -u)\" >>"+mark+"\ncat\n")
	roots := filepath.Join(dir, "roots")
	b.put(filepath.Join(roots, "junit.xml"), report)
	if err := os.Chmod(roots, 0o700); err != nil {
		t.Fatal(err)
	}
	// In the commits: attributes, links out of the tree, a submodule at a program.
	for name, to := range map[string]string{"junit.xml": roots + "/junit.xml", "reports": roots, "out": "/etc", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(b.Workspace, name)); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, b.Workspace, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub")
	if err := os.Mkdir(b.Workspace+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		".gitattributes": "*.txt filter=evil diff=evil merge=evil text eol=crlf ident\n*.bad working-tree-encoding=NO-SUCH\n*.lfs filter=lfs\nhidden export-ignore\n",
		".gitmodules":    "[submodule \"sub\"]\n\tpath = sub\n\turl = ext::" + evil + "\n\tupdate = !" + evil + "\n",
		"x.bad":          "1\n", "hidden": "1\n", "y.lfs": "version https://git-lfs.github.com/spec/v1\n", "b.txt": "1\n",
	} {
		b.put(filepath.Join(b.Workspace, name), content)
		gittest.Git(t, b.Workspace, "-c", "core.attributesFile=/dev/null", "update-index", "--add", "--cacheinfo", "100644,"+strings.TrimSpace(gittest.Git(t, b.Workspace, "hash-object", "-w", "--no-filters", name))+","+name)
	}
	for _, l := range []string{"junit.xml", "reports", "out", "loop"} {
		gittest.Git(t, b.Workspace, "update-index", "--add", l)
	}
	head := b.record()
	// Around them: configuration, hooks and a home.
	conf := "[filter \"evil\"]\n\tsmudge = " + evil + " smudge\n\tclean = " + evil + " clean\n\trequired = true\n[filter \"lfs\"]\n\tprocess = " + evil + "\n" +
		"[core]\n\tfsmonitor = " + evil + "\n\tsshCommand = " + evil + "\n\thooksPath = " + b.Home + "/hooks\n\tpager = " + evil + "\n[diff \"evil\"]\n\ttextconv = " + evil + "\n\tcommand = " + evil + "\n" +
		"[uploadpack]\n\tpackObjectsHook = " + evil + "\n[init]\n\ttemplateDir = " + b.Home + "/template\n[alias]\n\tcheckout = !" + evil + "\n[url \"ext::" + evil + " \"]\n\tinsteadOf = https://\n"
	b.put(filepath.Join(b.Home, ".gitconfig"), conf)
	b.put(filepath.Join(b.Home, ".config/git/config"), conf)
	b.put(filepath.Join(b.Home, ".config/git/attributes"), "* filter=evil\n")
	b.put(filepath.Join(b.Workspace, ".git/config"), "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"+conf)
	for _, hook := range []string{"post-checkout", "reference-transaction", "pre-auto-gc", "post-index-change"} {
		for _, at := range []string{b.Workspace + "/.git/hooks/", b.Home + "/hooks/", b.Home + "/template/hooks/"} {
			b.put(at+hook, "#!/bin/sh\nexec "+evil+" "+hook+" </dev/null\n")
		}
	}
	for _, name := range []string{"git", "sh", "bash", "go", "mktemp", "true"} {
		b.put(filepath.Join(b.Home, ".local/bin", name), "#!/bin/sh\nexec "+evil+" "+name+" </dev/null\n")
	}
	b.validate("test", `set -e; test -L junit.xml; test -L out; test -d sub; test ! -e sub/.git; test -e hidden; test -e x.bad; test ! -s .git/config.worktree; ls .git/hooks 2>/dev/null | wc -l; id -u
cat `+roots+`/junit.xml >/dev/null 2>&1 && echo readable; true`)
	b.asOther()
	p := b.prove(t.Context(), head)
	c := p.Checks[0]
	if c.Head == nil || !c.Head.Passed {
		t.Fatalf("%+v %q\n%s", p, b.warnings(), b.log("logs/proof-head-test.log"))
	}
	if b.User != nil && (c.Report != "" || strings.Contains(b.log("logs/proof-head-test.log"), "readable")) {
		t.Errorf("a report was read that the user cannot read: %+v", c)
	}
	if ran, err := os.ReadFile(mark); err != nil || len(ran) > 0 {
		t.Errorf("this ran: %s, %v", ran, err)
	}
}

// TestFilterOfTheMachine: the machine's own configuration may have filters (Git LFS). They run as the user, and
// one that fails does not keep the files from being there.
func TestFilterOfTheMachine(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{".gitattributes": "*.up filter=up\n*.no filter=no\n", "a.up": "text\n"})
	mark := filepath.Join(filepath.Dir(b.Home), "mark")
	b.put(mark, "")
	if err := os.Chmod(mark, 0o666); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(filepath.Dir(b.Home), "gitconfig")
	b.put(conf, "[filter \"up\"]\n\tsmudge = \"id -u >>"+mark+"; tr a-z A-Z\"\n[filter \"no\"]\n\tsmudge = false\n\trequired = true\n")
	b.Config = b.WithGit("GIT_CONFIG_SYSTEM=" + conf)
	b.validate("up", `test "$(cat a.up)" = TEXT`, "no", "test -s b.no")
	head := b.commit(map[string]string{"b.no": "1\n"})
	b.asOther()
	p := b.prove(t.Context(), head)
	got := []workorder.Transition{p.Checks[0].Transition, p.Checks[1].Transition}
	if !slices.Equal(got, []workorder.Transition{workorder.TransitionBroken, workorder.TransitionFixed}) {
		t.Errorf("%q %+v", got, p)
	}
	if w := b.warnings(); len(w) != 1 || !strings.Contains(w[0], "head") || !strings.Contains(w[0], "b.no") {
		t.Errorf("%q", w)
	}
	uid := os.Geteuid()
	if b.User != nil {
		uid = int(b.User.UID)
	}
	ran, err := os.ReadFile(mark)
	if err != nil || len(ran) == 0 || strings.Trim(strings.ReplaceAll(string(ran), strconv.Itoa(uid), ""), "\n") != "" {
		t.Errorf("ran as %q, want %d, %v", ran, uid, err)
	}
}

// TestLinkInsteadOfReport: what lies where a report would be is not followed, and not waited for.
func TestLinkInsteadOfReport(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	roots := filepath.Join(filepath.Dir(b.Home), "roots")
	b.put(filepath.Join(roots, "junit.xml"), report)
	b.put(filepath.Join(roots, "reports/junit.xml"), report)
	b.validate("link", "ln -s "+roots+"/junit.xml junit.xml", "pipe", "mkfifo pipe-junit.xml; mkdir -p test-results; mkfifo test-results/x.xml",
		"folder", "ln -s "+roots+"/reports reports", "swap", `cd ..; mv "$PWD/workspace" old; ln -s `+roots+` workspace`)
	p := b.prove(t.Context(), b.commit(map[string]string{"b": "1\n"}))
	for _, c := range p.Checks {
		if c.Head == nil || !c.Head.Passed || c.Head.Tests != nil {
			t.Errorf("%+v", c)
		}
	}
	if names := b.names(roots); len(names) != 2 {
		t.Errorf("removing the checkout followed a link: %q are left", names)
	}
}

// TestForgedObject: an object of the agent's store whose content is another than its id says is not what is proven.
func TestForgedObject(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"check.sh": "#!/bin/sh\nexit 1\n"})
	b.validate("test", "./check.sh")
	head := b.commit(map[string]string{"check.sh": "#!/bin/sh\necho really; exit 1\n"})
	object := func(rev string) string {
		id := strings.TrimSpace(gittest.Git(t, b.Workspace, "rev-parse", rev))
		return filepath.Join(b.Workspace, ".git/objects", id[:2], id[2:])
	}
	good := b.commit(map[string]string{"check.sh": "#!/bin/sh\nexit 0\n"})
	forged, err := os.ReadFile(object(good + ":check.sh"))
	if err != nil {
		t.Fatal(err)
	}
	target := object(head + ":check.sh")
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	b.put(target, string(forged))
	p := b.prove(t.Context(), head)
	if c := p.Checks[0]; c.Head != nil || c.Transition != workorder.TransitionNotCompared || len(p.Reasons) == 0 {
		t.Errorf("%+v", p)
	}
}

// TestBaseDoesNotFindHead: base's commands find no object of head's, neither in their checkout nor in what lies beside it, wherever
// base is. Head's find base.
func TestBaseDoesNotFindHead(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"a base that the remote had": false, "a base that it had not": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, map[string]string{"f": "1\n"})
			if lost {
				b.base = b.commit(map[string]string{"g": "1\n"})
			}
			head := b.commit(map[string]string{"f": "2\n"})
			b.asOther()
			look := "git cat-file -e " + b.base + " && git cat-file -e " + head
			if b.User != nil { // else it is we who look
				look = "export GIT_ALTERNATE_OBJECT_DIRECTORIES=$(find " + b.Dir + " " + b.Mirror.Dir + " -name objects 2>/dev/null | paste -sd:); " + look
			}
			b.validate("test", look)
			// Head is repeated after base.
			if c := b.prove(t.Context(), head).Checks[0]; c.Transition != workorder.TransitionFixed || c.Base == nil || c.Base.Passed {
				t.Errorf("%+v", c)
			}
			if log := b.log("logs/proof-head-test-again.log"); log != "" {
				t.Errorf("head once more: %s", log)
			}
		})
	}
}

// TestTreeThatNamesItself: ten objects are a tree of ten thousand million files.
func TestTreeThatNamesItself(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	b.validate("test", "true")
	id := strings.TrimSpace(gittest.Git(t, b.Workspace, "rev-parse", "HEAD^{tree}"))
	for range 10 {
		var list strings.Builder
		for i := range 10 {
			list.WriteString("040000 tree " + id + "\td" + string(rune('0'+i)) + "\n")
		}
		r := b.Mirror
		r.Dir, r.Stdin = filepath.Join(b.Workspace, ".git"), list.String()
		out, err := r.Output(t.Context(), "mktree")
		if err != nil {
			t.Fatal(err)
		}
		id = strings.TrimSpace(string(out))
	}
	head := strings.TrimSpace(gittest.Git(t, b.Workspace, "commit-tree", "-p", b.base, "-m", "bomb", id))
	gittest.Git(t, b.Mirror.Dir, "repack", "-adq") // as a large one is; a loose object is opened again for each of its names
	if p := b.prove(t.Context(), head); p.Checks[0].Head != nil || p.Reasons.Code() != workorder.ReasonCheckout {
		t.Errorf("%+v", p)
	}
}

// TestLeftProcesses: what a check leaves is gone before the next one begins, what setup leaves
// serves the checks of its own side, repeats included, and nothing of it outlives the proof.
func TestLeftProcesses(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]bool{"same user": false, "another user": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, map[string]string{"a": "1\n"})
			pids := filepath.Join(filepath.Dir(b.Home), "pids")
			b.put(pids, "")
			if err := os.Chmod(pids, 0o666); err != nil {
				t.Fatal(err)
			}
			// A killed process may stay a zombie: who reaps it is not the test's to say.
			const alive = `alive() { s=$(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) && [ -n "$s" ] && [ "$s" != Z ]; }; `
			leave := func(n string) string {
				return `rm -f "$HOME/` + n + `"; setsid sh -c 'echo $$ >"$HOME/` + n + `"; echo $$ >>` + pids + `; exec sleep 1000' >/dev/null 2>&1 & while [ ! -s "$HOME/` + n + `" ]; do sleep 0.02; done; `
			}
			b.Order.Setup = []string{leave("server")}
			b.validate("leaves", alive+leave("left")+`alive $(cat $HOME/left) && alive $(cat $HOME/server)`,
				"sees", alive+`! alive $(cat $HOME/left) && alive $(cat $HOME/server) && test -e b`)
			head := b.commit(map[string]string{"b": "1\n"})
			if other {
				b.asOther()
			}
			p := b.prove(t.Context(), head)
			if p.Checks[0].Transition != workorder.TransitionStillPasses || p.Checks[1].Transition != workorder.TransitionFixed || p.Checks[1].Head.Log != "logs/proof-head-sees-again.log" {
				t.Errorf("%+v %q", p, b.warnings())
			}
			all := strings.Fields(b.log("../pids"))
			if len(all) < 4 {
				t.Errorf("%q", all)
			}
			for _, pid := range all {
				stat, err := os.ReadFile("/proc/" + pid + "/stat")
				if err == nil && !strings.Contains(string(stat), ") Z ") {
					t.Errorf("%s is alive: %s", pid, stat)
				}
			}
		})
	}
}

func TestNotIDs(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	for _, ids := range [][2]string{{b.base, "HEAD"}, {"--all", b.base}, {b.base, ""}} {
		if p, err := proof.Run(t.Context(), b.Config, ids[0], ids[1]); err == nil || p == nil {
			t.Errorf("%q: %+v, %v", ids, p, err)
		}
	}
}
