//go:build boxtest

// This test runs as root inside a box, as those of internal/guest/dockerd do, with a volume on
// /var/lib/docker: it needs userns-remap, BuildKit and compose.
package guard_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/guard"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const boxWork = "/workspace-guard"

// boxPrelude makes an image of a few programs of the box: no registry answers here.
const boxPrelude = `
set -euo pipefail
is() { [ "$1" = "$2" ] || { echo "got '$1', want '$2'"; return 1; }; }
fails() { local p=$1; shift; local out; if out=$("$@" 2>&1); then echo "succeeded: $*: $out"; return 1; fi; grep -Eqi -e "$p" <<<"$out" || { echo "$* said: $out"; return 1; }; }
image() {
	mkdir -p /tmp/root/tmp /tmp/root/bin /tmp/root/etc; cd /tmp/root
	for b in bash sh cat id ls echo sleep touch mkdir stat head readlink tar; do
		cp -L "$(type -P $b)" bin/
		for l in $(ldd "$(type -P $b)" | grep -o '/[^ ]*'); do mkdir -p ".$(dirname $l)"; cp -Ln $l .$l; done
	done
	echo root:x:0:0::/root:/bin/sh >etc/passwd
	tar c . | docker import -c 'ENV PATH=/bin' -c 'CMD ["sh"]' - base
}
`

var boxChecks = []struct{ name, script string }{
	{"image", `image`},
	{"run", `is "$(docker run --rm base id -u)" 0; is "$(echo x | docker run --rm -i base cat)" x`},
	{"buildkit", `printf 'FROM base\nARG WHO\nCOPY f /f\nRUN echo made by $WHO >/made\n' >Dockerfile; echo f >f
		docker buildx build --progress plain --load -t app --build-arg WHO=me . ; is "$(docker run --rm app cat /made /f)" "made by me
f"; docker builder prune -af; docker buildx ls; docker buildx du`},
	{"compose", `cat >compose.yaml <<'E'
services:
  web: {image: base, command: [sh, -c, "sleep 1; touch /tmp/up; sleep 1000"], init: true, volumes: ["./data:/data", "kept:/kept"], healthcheck: {test: [CMD, ls, /tmp/up], interval: 1s, retries: 20}}
  client: {image: base, command: [sh, -c, "echo dependent; sleep 1000"], init: true, depends_on: {web: {condition: service_healthy}}}
volumes: {kept: {}}
E
		docker compose up -d --wait; docker compose ps; docker compose logs client | grep dependent; is "$(echo data | docker compose exec -T web cat)" data
		docker compose exec -T web sh -c 'echo x >/data/f; echo y >/kept/g'; is "$(stat -c %U data data/f | sort -u)" sandbox
		docker compose up -d --wait; docker compose restart -t 0 web; docker compose run --rm client echo ran; docker compose down -v -t 0`},
	{"a missing source", `docker run --rm -v "$PWD/new/dir:/x" base touch /x/f; is "$(stat -c %U new new/dir new/dir/f | sort -u)" sandbox`},
	{"the socket", `docker run --rm -v /var/run/docker.sock:/var/run/docker.sock -v /tmp:/t base sh -c 'ls /var/run/docker.sock'`},
	{"a bind that becomes a link", `
		mkdir -p sub/dir; docker create --name swap -v "$PWD/sub/dir:/x" base sh -c 'echo bad >/x/guard-was-here; cat /x/shadow'
		rm -r sub; ln -s /etc sub; fails "" docker start -a swap; test ! -e /etc/dir
		rm sub; mkdir sub; ln -s /etc sub/dir; fails "denied|not permitted" docker start -a swap; test ! -e /etc/guard-was-here
		fails "rule archive-bind" docker cp swap:/x/shadow - ; echo x >p; fails "rule archive-bind" docker cp p swap:/x/guard-was-here; test ! -e /etc/guard-was-here; docker rm swap`},
	{"cp with the whole workspace", `docker create --name whole -v ` + boxWork + `:/w base; docker cp whole:/bin/sh s; docker rm whole`},
	{"refused", `fails "rule userns" docker run --rm --userns host base; fails "rule privileged" docker run --rm --privileged base; fails "rule bind" docker run --rm -v /root:/x base
		fails "rule bind" docker run --rm -v "$PWD/../../etc:/x" base; ln -s / all; fails "rule bind" docker run --rm -v "$PWD/all:/x" base
		fails "rule network-subnet" docker network create --subnet "$(hostname -i | cut -d. -f1-3).0/24" n`},
}

func TestBox(t *testing.T) {
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod("/var/lib/docker", 0o711))
	must(os.MkdirAll("/tmp/logs", 0o755))
	must(os.MkdirAll(boxWork, 0o755))
	must(os.Chown(boxWork, 1000, 1000))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	e, err := dockerd.New(dockerd.Config{
		DataRoot: "/var/lib/docker/guard", RunDir: "/run/engine-guard", LogDir: "/tmp/logs",
		Socket: dockerd.DefaultSocket, RemapUser: "sandbox", Log: log,
	})
	must(err)
	must(e.Listen(ctx))
	t.Cleanup(func() { e.Stop(context.WithoutCancel(ctx)) })
	started := make(chan error, 1)
	go func() { started <- e.StartOnDemand(ctx) }()
	g := guard.New(guard.Config{
		Socket: "/var/run/docker.sock", GID: 1000, Upstream: dockerd.DefaultSocket,
		Binds: []string{boxWork, "/home/sandbox", "/tmp"}, Log: log,
	})
	must(g.Listen(ctx))
	t.Cleanup(g.Close)
	sh := func(dir, script string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
		var out bytes.Buffer
		err := proc.Run(ctx, proc.Spec{
			Argv: []string{"bash", "-c", boxPrelude + script}, Dir: dir, User: &proc.Credential{UID: 1000, GID: 1000},
			Env: append(os.Environ(), "HOME=/home/sandbox"), Stdout: &out, Stderr: &out,
		})
		return out.String(), err
	}
	// A refused request does not start the engine.
	if out, err := sh(boxWork, `curl -s --unix-socket /var/run/docker.sock http://d/services | grep "rule swarm"; ! pgrep -x dockerd`); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range boxChecks {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp(boxWork, "check") //nolint:usetesting // it has to be in the workspace
			must(err)
			must(os.Chown(dir, 1000, 1000))
			out, err := sh(dir, c.script)
			t.Log(out)
			if err != nil {
				t.Error(err)
			}
		})
	}
	must(<-started)
}
