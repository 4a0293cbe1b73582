//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// What setup left is there in the next task of a repository, for the agent and for both sides of the proof, and nothing that an agent left.
func TestSetupKept(t *testing.T) {
	t.Parallel()
	u := newCacheUser(t)
	const setup = `lifecycle:
  setup:
    - mkdir -p deps && echo dep >deps/dep && echo run >>$HOME/setups
validate: {test: 'date +%N; cat deps/dep $HOME/setups && [ ! -e deps/evil ] || [ -e $HOME/evil ]'}
`
	const agent = "ls -A deps >seen; ls -A $HOME | grep evil >>seen; git status --porcelain >>seen; pwd -P >>seen; echo evil >deps/evil; echo evil >$HOME/evil; chmod 700 deps; mv deps d; mv d deps"
	repo := u.repo(map[string]string{".gitignore": "deps/\nnow\n", "f": "0\n", "dir/g": "0\n"})
	file := u.project(scripted(setup, agent))
	task := func() *workorder.Result {
		t.Helper()
		c := u.run("", "create", "--task", "x", "--repo", repo, "-p", file)
		r := u.plainResult(c.task(t))
		if c.code != 0 || r.Status != workorder.StatusSuccess || r.Proof == nil || len(r.Proof.Reasons) > 0 || r.Proof.Checks[0].Transition != workorder.TransitionStillPasses {
			t.Fatalf("exit code %d, %s, %+v; %+v", c.code, r.Status, r.Reasons, r.Proof)
		}
		if got := gittest.Git(t, repo, "show", r.Branch+":seen"); got != "dep\n?? seen\n/workspace" {
			t.Errorf("the agent saw %q", got)
		}
		return r
	}
	// Head has other files than the base, and this command may read any of them.
	const head = "proof-head-setup-1"
	ran := func(r *workorder.Result) (logs []string) {
		for _, name := range []string{"setup-1", "proof-base-setup-1", head} {
			_, err := os.Stat(filepath.Join(u.state, r.TaskID, workorder.LogsDir, name+".log"))
			if err == nil {
				logs = append(logs, name)
			} else if !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
		return logs
	}
	base := func(r *workorder.Result) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(u.state, r.TaskID, filepath.FromSlash(r.Proof.Checks[0].Base.Log)))
		if err != nil || len(b) == 0 {
			t.Error(err)
		}
		return string(b)
	}
	first := task()
	if logs := ran(first); !slices.Equal(logs, []string{"setup-1", head}) {
		t.Errorf("the first task ran %q", logs)
	}
	kept := u.cache("ls").Snapshots // what the checks on base left, and what setup left, below it
	if len(kept) != 2 || kept[0].Bytes == 0 || kept[0].Used || kept[0].Below != 1 || kept[1].Below != 0 {
		t.Fatalf("%+v", kept)
	}
	second := task()
	if logs := ran(second); !slices.Equal(logs, []string{head}) {
		t.Errorf("the second task ran %q", logs)
	}
	if base(first) != base(second) {
		t.Error("base was proven again")
	}
	if got := u.cache("ls").Snapshots; len(got) != 2 || got[0].ID != kept[0].ID || !got[0].UsedAt.After(kept[0].UsedAt) {
		t.Errorf("%+v, was %+v", got, kept)
	}

	// A secret that setup writes down is in nothing that another task gets.
	const value = "npm-token-of-this-test"
	mine := *u
	mine.env = append(slices.Clone(u.env), "TOKEN="+value)
	secret := u.project(scripted("secrets: {TOKEN: {from: env://TOKEN, for: setup}}\nlifecycle:\n  setup:\n    - echo token=$TOKEN >$HOME/.npmrc\nvalidate: {test: 'true'}\n", "touch a"))
	c := mine.run("", "create", "--task", "x", "--repo", u.repo(map[string]string{"f": "0\n"}), "-p", secret)
	if r := mine.plainResult(c.task(t)); c.code != 0 || r.Status != workorder.StatusSuccess {
		t.Fatalf("exit code %d, %s, %+v", c.code, r.Status, r.Reasons)
	}
	u.nowhere(value)
	if got := u.cache("ls").Snapshots; len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if gone := u.cache("prune", "--all").RemovedSnapshots; len(gone) != 2 {
		t.Errorf("%+v", gone)
	}
	if got := u.cache("ls").Snapshots; len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// A setup that was not made to run twice in one work tree: the first task's proof and a task on a later base are as if nothing were kept.
func TestSetupThatCannotRunTwice(t *testing.T) {
	t.Parallel()
	u := newCacheUser(t)
	repo := u.repo(map[string]string{".gitignore": "made/\n", "f": "0\n"})
	file := u.project(scripted("env: {A: b}\nlifecycle:\n  setup:\n    - mkdir made && echo x >>made/x && echo x >>$HOME/x\nvalidate: {test: cat made/x}\n", "cat made/x $HOME/x >seen; grep A= .env >>seen; git status --porcelain >>seen"))
	for range 2 {
		c := u.run("", "create", "--task", "x", "--repo", repo, "-p", file)
		r := u.plainResult(c.task(t))
		if c.code != 0 || r.Status != workorder.StatusSuccess || r.Proof == nil || len(r.Proof.Reasons) > 0 || r.Proof.Checks[0].Transition != workorder.TransitionStillPasses {
			t.Fatalf("exit code %d, %s, %+v; %+v", c.code, r.Status, r.Reasons, r.Proof)
		}
		if got := gittest.Git(t, repo, "show", r.Branch+":seen"); got != "x\nx\nA=b\n?? seen" {
			t.Errorf("the agent saw %q", got)
		}
		if err := os.WriteFile(filepath.Join(repo, "g"), []byte(r.TaskID), 0o600); err != nil {
			t.Fatal(err)
		}
		gittest.Git(t, repo, "add", "g")
		gittest.Git(t, repo, "commit", "--quiet", "-m", "another base")
	}
	if got := u.cache("ls").Snapshots; len(got) != 2 { // of setup, and of the checks on base
		t.Errorf("%+v", got)
	}
}

// The agent finds a service as setup left it, though checks change it; the next task begins with their caches.
func TestChecksDoNotChangeTheServices(t *testing.T) {
	t.Parallel()
	// count says how often it was called for a name, in a service.
	const count = "printf 'INCR %s\\r\\nQUIT\\r\\n' $1 | nc redis 6379 | head -n 1 | tr -d '\\r'\n"
	// check passes in a service that has nothing but setup's, and leaves a cache, which git ignores.
	const check = "[ -e cache ] || date +%N >cache; [ $(sh count check) = :1 ]\n"
	lock := `{"name": "x", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": {"": {"name": "x", "version": "1.0.0"}}}`
	for name, row := range map[string]struct{ setup, want string }{
		"setup installs": {"npm ci --ignore-scripts", ":1 :1"},
		"setup fills it": {"sh count setup", ":1 :2"},
	} {
		if name == "setup installs" && !nightly {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newCacheUser(t)
			repo := u.repo(map[string]string{".gitignore": "cache\nnode_modules\n", "package.json": `{"name": "x", "version": "1.0.0"}`, "package-lock.json": lock, "count": count, "check": check})
			file := u.project(scripted("services:\n  redis: {image: "+redisImage+"}\nlifecycle: {setup: ["+row.setup+"]}\nvalidate: {test: sh check}\n",
				"cat cache >seen || echo none >seen; echo $(sh count check) $(sh count setup) >>seen"))
			var caches []string
			for range 2 {
				c := u.run("", "create", "--task", "x", "--repo", repo, "-p", file)
				r := u.plainResult(c.task(t))
				// The check beside the agent finds what the agent counted, and fails; the proof does not.
				if r.Proof == nil || len(r.Proof.Reasons) > 0 || r.Proof.Checks[0].Transition != workorder.TransitionStillPasses {
					t.Fatalf("exit code %d, %s, %+v; %+v", c.code, r.Status, r.Reasons, r.Proof)
				}
				cache, counted, _ := strings.Cut(gittest.Git(t, repo, "show", r.Branch+":seen"), "\n")
				if counted != row.want {
					t.Errorf("the agent counted %q", counted)
				}
				caches = append(caches, cache)
				_, err := os.Stat(filepath.Join(u.state, r.TaskID, workorder.LogsDir, "proof-base-setup-1.log"))
				if len(caches) == 2 && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("base was proven again: %v", err)
				}
			}
			if caches[0] != "none" || caches[1] == "none" {
				t.Errorf("the agents found the caches %q", caches)
			}
		})
	}
}

// nowhere looks for a text in all files of the cache's volume.
func (u *user) nowhere(text string) {
	u.t.Helper()
	in, err := eng.VolumeInspect(u.t.Context(), cacheVolume(u.t))
	if err != nil {
		u.t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(in.Mountpoint, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			u.t.Errorf("%s has it", path)
		}
		return err
	})
	if err != nil || files == 0 {
		u.t.Errorf("%d files, %v", files, err)
	}
}
