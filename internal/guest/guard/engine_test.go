//go:build e2e

package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/client"
)

// engineSocket is a real engine, GUARD_IMAGE an image with a shell, tar and perl.
const engineSocket = "/var/run/docker.sock"

func testImage() string {
	if s := os.Getenv("GUARD_IMAGE"); s != "" {
		return s
	}
	return "sandbox-agent-e2e/box"
}

// prelude are the words that the checks are written in.
const prelude = `
run() { docker run --rm --entrypoint "$1" "${@:2}"; }
is() { [ "$1" = "$2" ] || { echo "got '$1', want '$2'"; return 1; }; }
fails() { local p=$1; shift; local out; if out=$("$@" 2>&1); then echo "succeeded: $*: $out"; return 1; fi; grep -Eqi -e "$p" <<<"$out" || { echo "$* said: $out"; return 1; }; }
eventually() { for _ in $(seq 100); do "$@" && return; sleep 0.2; done; echo "never: $*"; return 1; }
box() { docker run -d --name "$1" --entrypoint sleep "${@:2}" "$IMAGE" 1000 >/dev/null; }
`

// checks use the engine as people do.
var checks = []struct{ name, script string }{
	{"version", `docker version; docker info >/dev/null; docker system df >/dev/null`},
	{"run", `is "$(run echo "$IMAGE" hello)" hello`},
	{"exit code", `c=0; run sh "$IMAGE" -c "exit 42" || c=$?; is $c 42`},
	{"stdin", `is "$(echo from stdin | docker run --rm -i --entrypoint cat "$IMAGE")" "from stdin"`},
	{"large stdin", `is "$(head -c 30000000 /dev/zero | docker run --rm -i --entrypoint wc "$IMAGE" -c)" 30000000`},
	{"terminal", `script -qec 'docker run --rm -it --entrypoint sh "$IMAGE" -c "tty; stty size"' /dev/null </dev/null | tee out; grep /dev/pts out`},
	{"exec", `box gd-exec; is "$(docker exec -e A=b -w /etc gd-exec sh -c 'echo $A $PWD')" "b /etc"; docker exec -d gd-exec true; c=0; docker exec gd-exec sh -c 'exit 3' || c=$?; is $c 3`},
	{"exec half close", `box gd-half; is "$(echo data | docker exec -i gd-half sh -c 'cat; echo end')" "data
end"`},
	{"exec terminal", `box gd-tty; script -qec "docker exec -it gd-tty tty" /dev/null </dev/null | grep /dev/pts`},
	{"attach", `docker run -d -i --name gd-attach --entrypoint sh "$IMAGE" -c 'read x; echo got $x'; echo word | docker attach gd-attach; eventually sh -c "docker logs gd-attach | grep -q 'got word'"`},
	{"logs -f", `docker run -d --name gd-logs --entrypoint sh "$IMAGE" -c 'for i in 1 2 3; do echo line $i; sleep 0.2; done'; is "$(docker logs -f gd-logs | tr '\n' ' ')" "line 1 line 2 line 3 "`},
	{"cp", `docker create --name gd-cp "$IMAGE"; echo x >a; docker cp a gd-cp:/tmp/a; docker cp gd-cp:/tmp/a b; cmp a b; docker cp gd-cp:/etc - | tar t | grep etc/passwd`},
	{"cp with a bind", `mkdir sub; box gd-cpb -v "$PWD/sub:/x" -v "$PWD/sub:/x/y"; fails "rule archive-bind" docker cp gd-cpb:/etc/passwd .; docker exec gd-cpb tar c /etc/passwd 2>/dev/null | tar t`},
	{"classic build", `printf 'FROM %s\nCOPY f /f\nARG WHO\nRUN echo made by $WHO >/made\n' "$IMAGE" >Dockerfile; echo f >f; DOCKER_BUILDKIT=0 docker build -t gd-built --build-arg WHO=me . && is "$(run cat gd-built /made)" "made by me"`},
	{"save and load", `head -c 100000000 /dev/urandom >big; tar c big | docker import - gd-big; docker save gd-big >big.tar; docker rmi gd-big; docker load -i big.tar; docker image inspect gd-big >/dev/null`},
	{"commit", `box gd-commit; docker commit gd-commit gd-committed; docker history gd-committed >/dev/null; docker tag gd-committed gd-built:2; docker rmi gd-built:2`},
	{"events", `docker events --filter container=gd-ev >ev & p=$!; sleep 1; box gd-ev; eventually grep -q "container start" ev; kill $p`},
	{"stats", `box gd-stats; timeout -s KILL 5 docker stats --format '{{.Name}}' gd-stats >st || true; grep -q gd-stats st; docker stats --no-stream gd-stats`},
	{"top", `box gd-top; docker top gd-top | grep sleep; docker top gd-top -eo pid,comm | grep sleep; fails "rule top-args" docker top gd-top -o pid=PID`},
	{"healthcheck", `box gd-health --health-cmd true --health-interval 1s; eventually sh -c "docker inspect -f {{.State.Health.Status}} gd-health | grep -qx healthy"`},
	{"named volume", `docker volume create gd-vol; run sh -v gd-vol:/v "$IMAGE" -c "echo kept >/v/k"; is "$(run cat --mount type=volume,source=gd-vol,target=/v "$IMAGE" /v/k)" kept; docker volume rm gd-vol`},
	{"bind", `mkdir bound; run sh -v "$PWD/bound:/w" "$IMAGE" -c "echo x >/w/f"; is "$(cat bound/f)" x; run sh -v "$PWD/new/deep:/w" "$IMAGE" -c "echo y >/w/f"; is "$(cat new/deep/f)" y; fails "read-only" run touch -v "$PWD/bound:/w:ro" "$IMAGE" /w/g; run cat --mount type=bind,source="$PWD/bound/f",target=/f "$IMAGE" /f`},
	{"published port", `docker run -d --name gd-port -p 127.0.0.1:0:80 --entrypoint perl "$IMAGE" -MIO::Socket -e '$s=IO::Socket::INET->new(LocalPort=>80,Listen=>1) or die; while($c=$s->accept){<$c>; print $c "HTTP/1.0 200 OK\r\n\r\n42\n"; close $c}'; a=$(docker port gd-port 80); is "$(eventually curl -fs "http://$a/")" 42`},
	{"network", `docker network create gd-net; box gd-peer --network gd-net; run getent --network gd-net "$IMAGE" hosts gd-peer; docker network disconnect gd-net gd-peer; docker network connect --alias other gd-net gd-peer; run getent --network gd-net "$IMAGE" hosts other; docker rm -f gd-peer; docker network rm gd-net`},
	{"limits", `run sh -m 64m --cpus 0.5 --pids-limit 50 --ulimit nofile=100 --shm-size 8m --tmpfs /t --read-only --init "$IMAGE" -ec 'test $(ulimit -n) = 100; touch /t/x'`},
	{"update, rename, restart, stop, wait", `box gd-life --stop-timeout 0; docker update -m 64m --memory-swap 64m gd-life; docker rename gd-life gd-life2; docker pause gd-life2; docker unpause gd-life2; docker restart -t 0 gd-life2; docker stop -t 0 gd-life2; docker wait gd-life2; docker start gd-life2; docker kill gd-life2; docker diff gd-life2 >/dev/null; docker export gd-life2 | tar t >/dev/null`},
	{"the socket again", `is "$(run sh -v /var/run/docker.sock:/var/run/docker.sock "$IMAGE" -c 'test -S /var/run/docker.sock && echo yes')" yes`},
	{"names", `docker ps -a >/dev/null; docker container ls --filter name=gd- >/dev/null; docker images >/dev/null; docker volume ls; docker network ls; docker network inspect bridge >/dev/null`},
	{"refused", `
		fails "rule privileged" run true --privileged "$IMAGE"
		fails "rule userns" run true --userns host "$IMAGE"
		fails "rule pid-namespace" run true --pid host "$IMAGE"
		fails "rule ipc-namespace" run true --ipc host "$IMAGE"
		fails "rule uts-namespace" run true --uts host "$IMAGE"
		fails "rule network-host" run true --network host "$IMAGE"
		net=$(run readlink --network "$(docker network inspect -f '{{.Id}}' host)" "$IMAGE" /proc/self/ns/net || true); test "$net" != "$(readlink /proc/self/ns/net)"
		fails "rule capability" run true --cap-add SYS_ADMIN "$IMAGE"
		fails "rule security-opt" run true --security-opt seccomp=unconfined "$IMAGE"
		fails "rule masked-paths" run true --security-opt systempaths=unconfined "$IMAGE"
		fails "rule device" run true --device /dev/null "$IMAGE"
		fails "rule bind" run true -v /etc:/x "$IMAGE"
		fails "rule bind" run true --mount type=bind,source=/etc,target=/x "$IMAGE"
		fails "rule volume-driver" docker volume create --opt type=none --opt o=bind --opt device=/etc gd-evil
		fails "rule network-driver" docker network create -d macvlan gd-evil
		fails "rule swarm" docker swarm init
		fails "rule plugin" docker plugin install x/y
		box gd-refuse; fails "rule privileged" docker exec --privileged gd-refuse true`},
	{"at once", `for i in 1 2 3 4 5 6; do (is "$(run echo "$IMAGE" $i)" $i || touch bad) & done; wait; test ! -e bad`},
}

func realGuard(t *testing.T) *fixture {
	t.Helper()
	f := newGuard(t, engineSocket)
	f.RealDirs()
	t.Cleanup(func() {
		for _, s := range []string{"docker ps -aq --filter name=^/gd-", "docker network ls -q --filter name=^gd-", "docker volume ls -q --filter name=^gd-", "docker images -q 'gd-*'"} {
			kind := map[string]string{"ps": "rm -fv", "network": "network rm", "volume": "volume rm", "images": "rmi -f"}[strings.Fields(s)[1]]
			_ = exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-c", s+" | xargs -r docker "+kind).Run()
		}
	})
	return f
}

func TestRealEngine(t *testing.T) {
	f := realGuard(t)
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			dir, err := os.MkdirTemp(f.work, "check") //nolint:usetesting // it has to be in the workspace
			if err != nil {
				t.Fatal(err)
			}
			must(t, os.Chmod(dir, 0o755)) // readable by all, like directories of the workspace
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", prelude+c.script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+f.socket, "IMAGE="+testImage())
			cmd.WaitDelay = time.Second // a failed check may leave a client behind
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
		})
	}
}

// TestOverhead prints what a request costs more; it asserts no time.
func TestOverhead(t *testing.T) {
	f := realGuard(t)
	for _, c := range []struct{ name, socket string }{{"direct", engineSocket}, {"guard", f.socket}} {
		for name, do := range map[string]func(*client.Client) error{
			"ping":    func(c *client.Client) error { _, err := c.Ping(t.Context()); return err },
			"inspect": func(c *client.Client) error { _, err := c.ImageInspect(t.Context(), testImage()); return err },
		} {
			cli, err := client.NewClientWithOpts(client.WithHost("unix://"+c.socket), client.WithVersion("1.41"))
			if err != nil {
				t.Fatal(err)
			}
			var took []time.Duration
			for range 500 {
				begin := time.Now()
				if err := do(cli); err != nil {
					t.Fatal(err)
				}
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			fmt.Printf("%-8s %-8s median %v p99 %v\n", name, c.name, took[len(took)/2], took[len(took)*99/100])
			_ = cli.Close()
		}
	}
}
