//go:build e2e && nightly

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// oldProgram is the commit that users upgrade from. The clone needs its history.
const oldProgram = "168dabb2c86fc07dee3128848cbb56a1b7e992e7"

// buildOld builds the program of oldProgram and its image, which is removed at the end of the test unless it was there before.
func buildOld(t *testing.T, u *user) (program string) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), cliLimit)
	defer cancel()
	for _, script := range []string{"git -C .. archive " + oldProgram + " | tar x -C '" + dir + "'", "make -C '" + dir + "' build"} {
		if out, err := proc.Output(ctx, proc.Spec{Argv: []string{"sh", "-ec", script}, Env: os.Environ()}); err != nil {
			t.Fatalf("%s: %v: %s (a shallow clone? git fetch --unshallow)", script, err, out)
		}
	}
	program = filepath.Join(dir, "bin", "sandbox-agent")
	old := *u
	old.program = program
	before := old.images()
	if c := old.run("", "image", "build"); c.code != 0 {
		t.Fatalf("image build: exit code %d", c.code)
	}
	for _, i := range old.images() {
		if i.Current && !slices.ContainsFunc(before, func(b provision.BuiltImage) bool { return b.ID == i.ID }) {
			t.Cleanup(func() {
				if _, err := eng.ImageRemove(context.WithoutCancel(t.Context()), i.Name, image.RemoveOptions{Force: true}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	return program
}

// What an older program made is listed, used, continued and removed by this one.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	program := buildOld(t, u)
	settings := filepath.Join(u.dir, "config")
	u.env = append(u.env, "XDG_CONFIG_HOME="+settings)
	if err := os.MkdirAll(filepath.Join(settings, "sandbox-agent"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(settings, "sandbox-agent", "config.yaml"), []byte("security: {require_sandbox: false}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	repo := u.newRepo()
	u.dir = repo
	name := func(kind string) string { return u.claim(fmt.Sprintf("old-%s-%d", kind, os.Getpid())) }
	jail, box, ended, clone, onHost := name("jail"), name("container"), name("ended"), name("clone"), name("host")
	all := []string{jail, box, ended, clone, onHost}
	t.Cleanup(func() { u.removeSnapshots(box) })
	ok := func(args ...string) string {
		t.Helper()
		c := u.run("", args...)
		if c.code != 0 {
			t.Fatalf("%s %q: exit code %d: %s", u.program, args, c.code, c.stderr)
		}
		return c.stdout
	}

	u.program = program
	ok("up", jail, "--runtime", "jail", "--title", "made before", "--idle", "8h")
	ok("up", box, "--image", plainImage, "--memory", "256m", "--port", "8080", "--env", "GREETING=hi")
	ok("up", ended, "--image", plainImage)
	ok("up", clone, "--runtime", "box", "--repo", ".")
	ok("up", onHost, "--runtime", "host")
	for _, n := range all {
		ok("exec", n, "--", "sh", "-c", "echo "+n+" >made-before")
	}
	ok("snapshot", "create", box, "s")
	ok("stop", ended)
	base := gittest.Git(t, repo, "rev-parse", "sandbox/"+clone)
	ok("exec", box, "--background", "--", "sleep", "3600")
	p := u.start("", "pool", "serve", "--max", "2")
	p.waitFor("the pool is at ")
	lease := u.acquire()
	ok("pool", "exec", lease.ID, "--", "sh", "-c", "echo leased >f")
	done := u.work("exit 0")
	finished := done.end(workorder.ExitOK, workorder.StatusSuccess, workorder.EndedByAgent)
	cut := u.work("[ -e second ] || sleep 600", "--if-exists", "continue")
	cut.Signal(syscall.SIGTERM)
	cut.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.EndedBySignal)
	running := u.work("exec sleep 600")

	u.program = ""
	// Listed.
	rows := u.ps()
	for _, id := range []string{finished.TaskID, cut.id, running.id} {
		if !slices.ContainsFunc(rows, func(r psRow) bool { return r.TaskID == id }) {
			t.Errorf("task %s is not listed: %+v", id, rows)
		}
	}
	var states []struct{ Name, State string }
	if err := json.Unmarshal([]byte(ok("ps", "--sandboxes", "--json")), &states); err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		want := map[bool]string{true: "stopped", false: "running"}[n == ended]
		i := slices.IndexFunc(states, func(s struct{ Name, State string }) bool { return s.Name == n })
		if i < 0 || states[i].State != want {
			t.Errorf("%s, want %s: %+v", n, want, states)
		}
	}
	// Used, also one that was stopped.
	for _, n := range all {
		if got := ok("exec", n, "--", "cat", "made-before"); got != n+"\n" {
			t.Errorf("%s has %q", n, got)
		}
		ok("status", n, "--json")
	}
	if got := ok("exec", box, "--", "sh", "-c", "echo $GREETING"); got != "hi\n" {
		t.Errorf("the variable is %q", got)
	}
	if got := ok("ports", box, "--json"); !strings.Contains(got, "8080") {
		t.Errorf("the port is gone: %s", got)
	}
	ok("exec", clone, "--", "sh", "-c", "echo new >made-after")
	if got := gittest.Git(t, repo, "diff", "--name-only", base, "sandbox/"+clone); got != "made-after" {
		t.Errorf("changed since: %q", got)
	}
	ok("exec", box, "--", "rm", "made-before")
	ok("snapshot", "restore", box, "s")
	if got := ok("exec", box, "--", "cat", "made-before"); got != box+"\n" {
		t.Errorf("the snapshot has %q", got)
	}
	if got := ok("pool", "exec", lease.ID, "--", "cat", "f"); got != "leased\n" {
		t.Errorf("the lease has %q", got)
	}
	ok("pool", "release", lease.ID)
	p.stopped(0)
	// Continued.
	ok("result", finished.TaskID, "--json")
	again := u.run("", "continue", cut.id, "--command", "git log --format=%s | grep -q \"agent's commit\" && test -e uncommitted && echo second >second")
	r := u.result(cut.id)
	if again.code != 0 || r.Status != workorder.StatusSuccess {
		t.Errorf("continue: exit code %d, %s (%s)", again.code, r.Status, r.Reasons)
	}
	if got := gittest.Git(t, cut.repo, "show", r.Branch+":second"); got != "second" {
		t.Errorf("the continued task has %q", got)
	}
	ok("stop", running.id)
	running.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.EndedBySignal)
	// Removed, with all work on the branches.
	ok(append([]string{"down"}, all...)...)
	if got := gittest.Git(t, repo, "show", "sandbox/"+clone+":made-after"); got != "new" {
		t.Errorf("the branch has %q", got)
	}
	var kept []struct{ Name string }
	if err := json.Unmarshal([]byte(ok("snapshot", "list", box, "--json")), &kept); err != nil {
		t.Fatal(err)
	}
	for _, s := range kept {
		ok("snapshot", "rm", box, s.Name)
	}
	ok("rm", finished.TaskID, cut.id, running.id)
	ok("gc")
	if rows := u.ps(); len(rows) != 0 {
		t.Errorf("left: %+v", rows)
	}
}
