package localrepo_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// trapped is a repository whose configuration names a program wherever git knows of one that it might run. The program leaves a
// line in the returned file.
func trapped(t *testing.T) (repo, marker string) {
	t.Helper()
	repo, dir := repository(t), t.TempDir()
	marker = filepath.Join(dir, "marker")
	trap := func(name string) string {
		file := filepath.Join(dir, name)
		write(t, file, []byte("#!/bin/sh\necho "+name+" \"$@\" >>"+marker+"\nexit 1\n"))
		return file
	}
	set := func(key, value string) { must(t, repo, "config", key, value) }
	// Files whose content git has to look at, by filters of the repository's.
	write(t, filepath.Join(repo, ".gitattributes"), []byte("*.a filter=evil\n*.b filter=long\n*.c filter=a=b\n*.d filter=included diff=evil merge=evil\n"))
	for _, name := range []string{"x.a", "x.b", "x.c", "x.d"} {
		write(t, filepath.Join(repo, name), []byte("one\n"))
	}
	must(t, repo, "add", ".")
	must(t, repo, "commit", "-qm", "files")
	// A submodule with a configuration of its own.
	sub := repository(t)
	write(t, filepath.Join(sub, ".gitattributes"), []byte("* filter=evil\n"))
	must(t, sub, "add", ".")
	must(t, sub, "commit", "-qm", "attributes")
	must(t, repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", sub, "sub")
	must(t, repo, "commit", "-qm", "sub")
	must(t, filepath.Join(repo, "sub"), "config", "filter.evil.clean", trap("sub-clean"))
	must(t, filepath.Join(repo, "sub"), "config", "core.fsmonitor", trap("sub-fsmonitor"))
	must(t, filepath.Join(repo, "sub"), "config", "core.hooksPath", filepath.Join(dir, "hooks"))
	must(t, filepath.Join(repo, "sub"), "config", "remote.origin.uploadpack", trap("sub-uploadpack"))
	// A folder whose objects are borrowed, which is a repository that could be asked for its refs.
	other := repository(t)
	must(t, other, "config", "core.fsmonitor", trap("alternate-fsmonitor"))
	write(t, filepath.Join(repo, ".git", "objects", "info", "alternates"), []byte(filepath.Join(other, ".git", "objects")+"\n"))

	for _, hook := range []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction", "post-index-change", "proc-receive", "push-to-checkout", "fsmonitor-watchman", "post-checkout"} {
		write(t, filepath.Join(repo, ".git", "hooks", hook), []byte("#!/bin/sh\nexec "+trap("hook-"+hook)+"\n"))
		write(t, filepath.Join(dir, "hooks", hook), []byte("#!/bin/sh\nexec "+trap("hooks-path-"+hook)+"\n"))
	}
	for key, value := range map[string]string{
		"core.alternateRefsCommand": trap("alternate-refs"), "core.fsmonitor": trap("fsmonitor"), "core.sshCommand": trap("ssh"), "core.hooksPath": filepath.Join(dir, "hooks"),
		"core.pager": trap("pager"), "pager.status": trap("pager-status"), "core.editor": trap("editor"), "core.askPass": trap("askpass"), "core.gitProxy": trap("proxy"),
		"credential.helper": trap("credential"), "credential.http://127.0.0.1.helper": trap("credential-url"), "uploadpack.packObjectsHook": trap("pack-objects"),
		"diff.external": trap("diff"), "diff.evil.command": trap("diff-driver"), "diff.evil.textconv": trap("textconv"), "merge.evil.driver": trap("merge"),
		"filter.evil.clean": trap("clean"), "filter.evil.smudge": trap("smudge"), "filter.evil.required": "true", "filter.long.process": trap("process"), "filter.long.required": "true",
		"gpg.program": trap("gpg"), "gpg.ssh.program": trap("gpg-ssh"), "log.showSignature": "true", "receive.certNonceSeed": "x",
		"hook.evil.event": "pre-receive", "hook.evil.command": trap("config-hook"), "trailer.x.command": trap("trailer"),
		"protocol.ext.allow": "always", "protocol.file.allow": "always", "protocol.ssh.allow": "always", "protocol.evil.allow": "always",
		"remote.origin.url": "ext::" + trap("ext"), "remote.origin.uploadpack": trap("uploadpack"), "remote.origin.receivepack": trap("receivepack"), "remote.origin.vcs": "ext", "remote.origin.promisor": "true",
		"remote.near.url": other, "remote.near.uploadpack": trap("near-uploadpack"), "remote.near.promisor": "true", "remote.near.partialCloneFilter": "blob:none",
		"url.ext::" + trap("instead") + ".insteadOf": "/tmp/", "fetch.recurseSubmodules": "true", "submodule.recurse": "true", "status.submoduleSummary": "true",
		"gc.auto": "1", "receive.autogc": "true", "maintenance.auto": "true", "alias.status": "!" + trap("alias"), "alias.rev-parse": "!" + trap("alias"),
		"receive.denyCurrentBranch": "updateInstead", "fetch.bundleURI": "file://" + filepath.Join(dir, "none"),
	} {
		set(key, value)
	}
	set("extensions.partialClone", "near")
	set("core.repositoryFormatVersion", "1")
	included := filepath.Join(dir, "included")
	write(t, included, []byte("[filter \"included\"]\n\tclean = "+trap("included-clean")+"\n\trequired\n[filter \"a=b\"]\n\tclean = "+trap("named-clean")+"\n\trequired\n"))
	set("include.path", included)
	// Git reads files that it believes to be changed anew, through the filters.
	for _, name := range []string{"x.a", "x.b", "x.c", "x.d", "sub/file"} {
		write(t, filepath.Join(repo, name), []byte("two\n"))
	}
	return repo, marker
}

// ran are the traps that were sprung since the last look.
func ran(t *testing.T, marker string) string {
	t.Helper()
	b, err := os.ReadFile(marker)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	_ = os.Remove(marker) // there is none, mostly
	return strings.TrimSpace(string(b))
}

// TestForeignConfiguration: nothing that a repository of this machine configures runs a program, whatever is asked of it.
func TestForeignConfiguration(t *testing.T) {
	t.Parallel()
	repo, marker := trapped(t)
	// The traps work: a git that believes the configuration runs them.
	if out, err := git(t, repo, "status", "--porcelain"); err == nil && ran(t, marker) == "" {
		t.Fatalf("no trap is sprung by git itself:\n%s", out)
	}
	_ = os.Remove(marker)
	quiet := func(what string) {
		t.Helper()
		if sprung := ran(t, marker); sprung != "" {
			t.Errorf("%s ran\n%s", what, sprung)
		}
	}
	r, err := localrepo.Open(t.Context(), filepath.Join(repo, "sub", ".."))
	quiet("to open it")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Base(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if _, err := r.Base(t.Context(), "none"); err == nil {
		t.Error("a branch that is not there")
	}
	quiet("to look for a branch")
	if urls := localrepo.Remotes(t.Context(), repo); len(urls) == 0 {
		t.Error("no remotes")
	}
	quiet("to look for its remotes")

	url := serve(t, repo)
	dir := clone(t, url)
	quiet("a clone")
	sha := commit(t, dir, "new", []byte("new"))
	must(t, dir, authorised(token, "push", "-q", "origin", "HEAD:refs/heads/"+branch, "HEAD:"+workorder.StateRef(id))...)
	quiet("a push")
	if got := must(t, dir, authorised(token, "ls-remote", "origin", "refs/heads/"+branch)...); !strings.HasPrefix(got, sha) {
		t.Errorf("the push did not arrive: %s", got)
	}
	if names, err := r.TaskRefs(t.Context(), id); err != nil || len(names) != 2 {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := r.State(t.Context(), id); err == nil {
		t.Error("a state that is none")
	}
	quiet("to look for a task")

	commit(t, dir, "newer", []byte("newer"))
	must(t, dir, "branch", branch)
	must(t, dir, "bundle", "create", "-q", "work.bundle", "origin/main.."+branch)
	if _, err := localrepo.ImportBundle(t.Context(), repo, filepath.Join(dir, "work.bundle"), id, branch); err != nil {
		t.Error(err)
	}
	quiet("a bundle that comes home")
}

// TestOwnFilters: what the user configured for all repositories is not switched off in one that names it too.
func TestOwnFilters(t *testing.T) {
	repo, home := repository(t), t.TempDir()
	marker := filepath.Join(home, "marker")
	write(t, filepath.Join(home, "clean"), []byte("#!/bin/sh\necho ran >"+marker+"\nexec cat\n"))
	write(t, filepath.Join(home, ".gitconfig"), []byte("[filter \"lfs\"]\n\tclean = "+filepath.Join(home, "clean")+"\n\trequired\n"))
	write(t, filepath.Join(repo, ".gitattributes"), []byte("*.bin filter=lfs\n"))
	write(t, filepath.Join(repo, "x.bin"), []byte("one\n"))
	must(t, repo, "add", ".")
	must(t, repo, "commit", "-qm", "x")
	must(t, repo, "config", "filter.lfs.clean", "false")
	write(t, filepath.Join(repo, "x.bin"), []byte("two\n"))
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	r, err := localrepo.Open(t.Context(), repo)
	if err != nil || len(r.Changed) != 1 || ran(t, marker) != "ran" {
		t.Errorf("%+v, %v", r, err)
	}
}
