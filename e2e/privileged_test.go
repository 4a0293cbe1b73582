//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// dockerBox is the small image with an inner engine.
const dockerBox = "sandbox-agent-e2e/docker-box"

// privilegedEngine is an engine that can give a privileged box: on a machine that lacks a capability the engine cannot
// start one with its own runtime; nores asks for no more than there is.
func privilegedEngine(t *testing.T) *ownEngine {
	t.Helper()
	nores := filepath.Join(shortDir(t), "nores")
	if _, err := proc.Output(t.Context(), proc.Spec{
		Argv: []string{"go", "build", "-o", nores, "../internal/test/nores"}, Env: append(os.Environ(), "CGO_ENABLED=0"),
	}); err != nil {
		t.Fatal(err)
	}
	e := newOwnEngine(t, 4<<30, "--add-runtime", "nores="+nores)
	if err := buildImage(t.Context(), dockerBox, "FROM "+ownBox+"\n"+
		fmt.Sprintf(aptInstall, "docker.io docker-cli iproute2 iptables busybox-static")+
		"RUN printf 'sandbox:1000:1\\nsandbox:100000:65535\\n' | tee /etc/subuid >/etc/subgid\n"+
		"WORKDIR /workspace\nVOLUME /var/lib/docker\n"); err != nil {
		t.Fatal(err)
	}
	e.load(dockerBox)
	return e
}

// privileged are the flags that ask for such a box.
var privileged = []string{"--image", dockerBox, "--isolation", "privileged", "--oci-runtime", "nores"}

// A privileged box runs a task that uses Docker, and holds an agent that means harm.
func TestPrivileged(t *testing.T) {
	t.Parallel()
	e := privilegedEngine(t)
	t.Run("docker", func(t *testing.T) { privilegedDocker(t, e) })
	if !nightly {
		return // the attempts are those of TestAttack, and the guard in the box is the same
	}
	t.Run("attack", func(t *testing.T) {
		attackSetup{
			program: buildAttack(t), mode: workorder.NetworkRestricted, isolation: "privileged",
			host: e.address, engine: e.Client, env: []string{"DOCKER_HOST=" + e.host()}, flags: privileged,
		}.run(t)
	})
}

func privilegedDocker(t *testing.T, e *ownEngine) {
	t.Helper()
	u := newUser(t, "DOCKER_HOST="+e.host())
	repo := u.repo(map[string]string{"README": "x"})
	c := u.run("", append([]string{"create", "--task", "x", "--repo", repo, "-p", u.project(scripted("", `
set -eu
docker version --format '{{.Server.Version}}'
mkdir -p /tmp/root/bin
cp "$(command -v busybox)" /tmp/root/bin/
ln -s busybox /tmp/root/bin/sh
ln -s busybox /tmp/root/bin/id
tar -C /tmp/root -c . | docker import - base
docker run --rm -v "$PWD:/w" base sh -c 'id -u >/w/inside; echo of-a-container >>/w/inside'
stat -c %U inside >>inside
`))}, privileged...)...)
	r := u.plainResult(c.task(t))
	if c.code != 0 || r.Status != workorder.StatusSuccess {
		t.Fatalf("exit code %d, %s by %s: %s\n%s", c.code, r.Status, r.EndedBy, r.Reasons, c.stdout)
	}
	// Privileged is the box, not what runs in it: root of an inner container is the user sandbox.
	if got := gittest.Git(t, repo, "show", r.Branch+":inside"); got != "0\nof-a-container\nsandbox" {
		t.Errorf("the container wrote %q", got)
	}
	if r.Platform.StorageDriver == "" {
		t.Errorf("host %+v", r.Platform)
	}
	u.noneLeft(e.Client)
}
