//go:build e2e && nightly

package e2e

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// secondMachine is a user with a cache and a state of their own.
func secondMachine(t *testing.T) *user {
	t.Helper()
	volume := cacheVolume(t) + "-2"
	remove := func() {
		if err := eng.VolumeRemove(context.WithoutCancel(t.Context()), volume, true); err != nil {
			t.Error(err)
		}
	}
	remove()
	t.Cleanup(remove)
	return newCarefulUser(t, "SANDBOX_AGENT_CACHE_VOLUME="+volume)
}

// Setup that ran on one machine is not run on another one, which has neither its cache nor the image that it was made with.
func TestCacheOnAnotherMachine(t *testing.T) {
	t.Parallel()
	u := newCacheUser(t)
	const image, value = "sandbox-agent-e2e-cachemove", "npm-token-of-a-moved-cache"
	err := buildImage(t.Context(), image, "FROM "+defaultImage(t, u)+"\nLABEL made=by-a-test\n")
	if err != nil {
		t.Fatal(err)
	}
	remove := func() {
		_, _ = eng.ImageRemove(t.Context(), image, imagetypes.RemoveOptions{Force: true})
	}
	defer remove()
	repo := u.repo(map[string]string{".gitignore": "deps/\n", "f": "0\n"})
	project := func(u *user) string {
		return u.project("image: " + image + "\n" + scripted("secrets: {TOKEN: {from: env://TOKEN, for: setup}}\nlifecycle:\n  setup:\n    - test -n \"$TOKEN\" && mkdir -p deps && echo dep >deps/dep && echo run >>$HOME/setups\n", "cat deps/dep $HOME/setups >seen"))
	}
	task := func(u *user, ran bool) {
		t.Helper()
		mine := *u
		mine.env = append(slices.Clip(mine.env), "TOKEN="+value)
		c := mine.run("", "create", "--task", "x", "--repo", repo, "-p", project(u))
		r := mine.plainResult(c.task(t))
		if c.code != 0 || r.Status != workorder.StatusSuccess {
			t.Fatalf("exit code %d, %s, %+v", c.code, r.Status, r.Reasons)
		}
		if got := gittest.Git(t, repo, "show", r.Branch+":seen"); got != "dep\nrun" {
			t.Errorf("the agent saw %q", got)
		}
		if _, err := os.Stat(filepath.Join(u.state, r.TaskID, workorder.LogsDir, "setup-1.log")); errors.Is(err, os.ErrNotExist) == ran {
			t.Errorf("setup ran: want %v, %v", ran, err)
		}
		for _, s := range r.Steps {
			if s.Name == workorder.StepSetup {
				t.Logf("setup took %d ms", s.DurationMS)
			}
		}
	}
	task(u, true)
	file := filepath.Join(t.TempDir(), "setup.tar.gz")
	c := u.run("", "cache", "export", file, "--repo", repo, "--json")
	var made app.CacheMove
	if err := json.Unmarshal([]byte(c.stdout), &made); c.code != 0 || err != nil || len(made.Snapshots) == 0 || len(made.Images) != 1 || made.Images[0].Name != image+":latest" {
		t.Fatalf("exit code %d, %+v, %v", c.code, made, err)
	}
	noSecret(t, file, value)

	remove()
	other := secondMachine(t)
	c = other.run("", "cache", "import", file, "--json")
	var there app.CacheMove
	if err := json.Unmarshal([]byte(c.stdout), &there); c.code != 0 || err != nil || len(there.Snapshots) != len(made.Snapshots) || len(there.Refused) != 0 {
		t.Fatalf("exit code %d, %+v, %v", c.code, there, err)
	}
	task(other, false)
	other.noCacheBox()

	if c := other.run("", "cache", "export", filepath.Join(t.TempDir(), "none"), "--repo", "https://example.org/none.git"); c.code != workorder.ExitNotFound {
		t.Errorf("nothing to export: exit code %d", c.code)
	}
}

// defaultImage is the name of the smallest image that new sandboxes use.
func defaultImage(t *testing.T, u *user) string {
	t.Helper()
	c := u.run("", "image", "ls", "--json")
	var images []provision.BuiltImage
	if err := json.Unmarshal([]byte(c.stdout), &images); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(images, func(x, y provision.BuiltImage) int { return cmp.Compare(x.Bytes, y.Bytes) })
	for _, i := range images {
		if i.Current && strings.HasPrefix(i.Name, "sandbox-agent:") {
			return i.Name
		}
	}
	t.Fatalf("no default image in %s", c.stdout)
	return ""
}

// noSecret looks for a text in a compressed archive.
func noSecret(t *testing.T, file, value string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	seen, kept := 0, 0 // kept bytes of the previous part may begin with the text
	for buf := make([]byte, 1<<20); ; {
		n, err := z.Read(buf[kept:])
		part := buf[:kept+n]
		if bytes.Contains(part, []byte(value)) {
			t.Error("the archive has the secret")
		}
		seen += n
		kept = copy(buf, part[max(0, len(part)-len(value)):])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 1<<20 {
		t.Errorf("only %d bytes", seen)
	}
}
