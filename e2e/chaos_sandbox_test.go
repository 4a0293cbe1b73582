//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// descendants are the processes that descend from one.
func descendants(pid int) (all []int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // one that has ended has none
	for f := range strings.FieldsSeq(string(b)) {
		if child, err := strconv.Atoi(f); err == nil {
			all = append(append(all, child), descendants(child)...)
		}
	}
	return all
}

// TestChaosSandbox kills the command line, the porter, the keeper, the guest or what else is in a jail, and the container of a sandbox at random moments while commands change files in its clone: what a command
// that ended well has written is on the branch, the next command works, and nothing is left at the end. `make chaos` sets the rounds and the seed.
func TestChaosSandbox(t *testing.T) {
	t.Parallel()
	rounds, seed := 3, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("SANDBOX_AGENT_CHAOS_ROUNDS")); err == nil {
		rounds = n
	}
	if n, err := strconv.ParseUint(os.Getenv("SANDBOX_AGENT_CHAOS_SEED"), 10, 64); err == nil {
		seed = n
	}
	for _, kind := range []string{"jail", "container"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 0)) // the seed makes a run repeatable
			t.Logf("seed %d", seed)
			u := newCarefulUser(t)
			repo := u.newRepo()
			name := fmt.Sprintf("chaos-%d", os.Getpid()) // an engine gives a name once
			up := []string{"up", name, "--repo", ".", "--runtime", kind, "--port", "3000"}
			if kind == "container" {
				up = append(up, "--image", strings.TrimSpace(u.run("", "image", "build").stdout))
			}
			if c := u.run("", up...); c.code != 0 {
				t.Fatalf("exit code %d: %s", c.code, c.stderr)
			}
			var written []string
			for round := range rounds {
				file := fmt.Sprintf("f%d", round)
				s := u.start("", "exec", name, "--", "sh", "-c", "echo "+file+" >"+file+"; mkdir -p d"+file+"; echo x >d"+file+"/x")
				time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
				removed := false
				switch blow := rng.IntN(4); {
				case blow == 0:
					s.Signal(syscall.SIGKILL)
				case blow == 3:
					if pid := u.porterOf(name); pid > 1 {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
				case kind == "jail":
					keeper, _ := u.keeper(name)
					all := append(descendants(keeper), keeper) // the guest, what holds it, what runs in it
					_ = syscall.Kill(all[rng.IntN(len(all))], syscall.SIGKILL)
				case blow == 1:
					_ = eng.ContainerKill(t.Context(), "sandbox-agent-sandbox-"+name, "KILL")
				default:
					removed = true
					_ = eng.ContainerRemove(t.Context(), "sandbox-agent-sandbox-"+name, container.RemoveOptions{Force: true})
				}
				// What a container had that is removed before the save has ended, of which the command line tells, is gone.
				if c := s.wait(); c.code == 0 && (!removed || c.stderr == "") {
					written = append(written, file)
				}
				if c := u.run("", "exec", name, "--", "true"); c.code != 0 {
					t.Errorf("round %d: the next command: exit code %d: %s", round, c.code, c.stderr)
				}
				if u.porterOf(name) == 0 {
					t.Errorf("round %d: nobody holds the port", round)
				}
				have := strings.Fields(gittest.Git(t, repo, "ls-tree", "-r", "--name-only", "sandbox/"+name))
				for _, file := range written {
					if !slices.Contains(have, file) || !slices.Contains(have, "d"+file+"/x") {
						t.Fatalf("round %d: lost %s", round, file)
					}
				}
			}
			gittest.Git(t, repo, "fsck", "--strict")
			if c := u.run("", "down", "--force", name); c.code != 0 {
				t.Errorf("down: exit code %d: %s", c.code, c.stderr)
			}
			if pid := u.porterOf(name); pid != 0 {
				t.Errorf("the port is held by process %d", pid)
			}
			if kind == "jail" {
				if left, err := filepath.Glob(filepath.Join(u.state, "sandboxes", "*")); err != nil || len(left) > 0 {
					t.Errorf("left: %s, %v", strings.Join(left, " "), err)
				}
			}
		})
	}
}
