//go:build boxtest

// This test runs as root inside a box, as those of internal/guest/dockerd do, with a volume on
// /var/lib/docker: it needs userns-remap, BuildKit and compose.
package guard_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/guard"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	boxWork   = "/workspace-guard"
	boxMounts = "/run/guard-binds"
	// boxSecret is what the agent may not pass, with files behind it that everybody may read.
	boxSecret = "/var/lib/guard-secret"
)

// boxPrelude makes an image of a few programs of the box: no registry answers here.
const boxPrelude = `
set -euo pipefail
is() { [ "$1" = "$2" ] || { echo "got '$1', want '$2'"; return 1; }; }
fails() { local p=$1; shift; local out; if out=$("$@" 2>&1); then echo "succeeded: $*: $out"; return 1; fi; grep -Eqi -e "$p" <<<"$out" || { echo "$* said: $out"; return 1; }; }
tries() { [ -n "${BOXTEST_NIGHTLY-}" ] && echo $2 || echo $1; } # with each change, at night
eventually() { for _ in $(seq 300); do "$@" && return; sleep 0.1; done; echo "never: $*"; return 1; }
image() {
	mkdir -p /tmp/root/tmp /tmp/root/bin /tmp/root/etc; cd /tmp/root
	for b in bash sh cat id ls echo sleep touch mkdir stat head readlink tar true grep; do
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
	// BuildKit's git would be root's, on a repository of the client's. Who asks the server is seen by what asks.
	{"a repository that BuildKit would fetch", `
		mkdir web; git init -q --bare web/x.git; git init -q w; (cd w; printf 'FROM base\nRUN echo fetched\n' >Dockerfile; git add .; git -c user.name=a -c user.email=a@b commit -qm a; git push -q ../web/x.git HEAD:main); git -C web/x.git symbolic-ref HEAD refs/heads/main; git -C web/x.git update-server-info
		python3 -u -m http.server -b 127.0.0.1 -d web 0 >addr 2>asked & p=$!; trap 'kill $p' EXIT; eventually grep -q "port " addr; url=http://127.0.0.1:$(grep -o 'port [0-9]*' addr | cut -d' ' -f2)/x.git
		git ls-remote $url | grep main; eventually grep -q info/refs asked; mv asked before; : >mark; n=$(wc -l <before); asked() { [ "$(wc -l <before)" -gt "$n" ]; }
		fails "rule build-remote" docker build "$url"; fails "rule build-remote" docker buildx build "$url#main";
		mkdir ctx; printf 'FROM scratch\nADD %s /x\n' "$url" >ctx/Dockerfile; fails "rule build-remote" docker buildx build --progress plain ctx
		printf 'FROM scratch\nADD git@127.0.0.1:x.git /x\n' >ctx/Dockerfile; fails "rule build-remote" docker buildx build --progress plain ctx
		printf 'FROM scratch\nCOPY --from=named / /x\n' >ctx/Dockerfile; fails "rule build-remote" docker buildx build --progress plain --build-context "named=$url" ctx
		printf 'target "default" { context = "%s" }\n' "$url" >docker-bake.hcl; fails "rule build-remote" docker buildx bake --progress plain
		! asked || { cat before; exit 1; }`},
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
		mkdir -p sub/dir; docker create --name swap -v "$PWD/sub/dir:/x" base sh -c 'ls /x; cat /x/secret; echo bad >/x/guard-was-here'
		rmdir sub/dir; ln -s ` + boxSecret + `/open sub/dir; fails "rule bind" docker start -a swap; fails "rule bind" docker restart swap
		rm -r sub; ln -s ` + boxSecret + ` sub; fails "rule bind" docker start -a swap
		rm sub; ln -s /etc sub; fails "rule bind" docker start -a swap
		rm sub; mkdir -p sub/dir; echo mine >sub/dir/secret; is "$(docker start -a swap)" "secret
mine"; test -e sub/dir/guard-was-here; docker rm swap`},
	{"a bind that changes while it is looked at", `
		(set +e; while test ! -e over; do mkdir -p way/open; rm -r way; ln -s ` + boxSecret + ` way; rm way; done 2>/dev/null) & p=$!
		won() { touch over; wait $p; echo "read it: $1"; exit 1; }
		n=$(tries 4 12); for i in $(seq $n); do out=$(docker run --rm -v "$PWD/way/open:/x" base cat /x/secret 2>&1) || true; [[ $out != *"root only"* ]] || won "$out"; done
		for i in $(seq 100); do docker create --name race -v "$PWD/way/open:/x" base cat /x/secret >/dev/null 2>&1 && break; done
		for i in $(seq $n); do out=$(docker start -a race 2>&1) || true; [[ $out != *"root only"* ]] || won "$out"; docker restart -t 0 race >/dev/null 2>&1 || true; done
		touch over; wait $p; is "$(docker logs race 2>&1 | grep -c "root only" || true)" 0; docker rm -f race`},
	{"a refused start of what is to be removed", `
		docker create --rm --name removed -v "$PWD/d:/x" base; rmdir d; ln -s /etc d; fails "rule bind" docker start -a removed; gone() { ! docker inspect removed; }; eventually gone`},
	{"folders of root's are not passed", `fails "rule bind" docker run --rm -v ` + boxSecret + `/open:/x base; fails "permission denied" docker run --rm -v /tmp/guard-secret/open:/x base cat /x/secret`},
	{"a file replaced by rename", `
		echo one >f; docker create --name renamed --mount "type=bind,source=$PWD/f,target=/f,readonly" base cat /f; is "$(docker start -a renamed)" one
		echo two >g; mv g f; is "$(docker start -a renamed)" two; rm f; fails "does not exist: $PWD/f" docker start -a renamed
		docker rm renamed; mkdir d; docker create --name again -v "$PWD/d:/d" base ls /d; rmdir d; docker start -a again; is "$(stat -c %U d)" sandbox; docker rm again`},
	{"a running one restarts", `
		echo one >f; docker run -d --init --name restarted -v "$PWD/f:/f" base sh -c 'cat /f; sleep 1000'; eventually sh -c "docker logs restarted | grep one"
		echo two >g; mv g f; docker exec restarted grep one /f || is "$(docker exec restarted cat /f)" one; docker restart -t 0 restarted; is "$(docker exec restarted cat /f)" two; docker rm -f restarted`},
	{"the original path is shown", `
		mkdir d; ln -s d l; docker create --name shown -v "$PWD/l/.:/x:ro" --mount "type=bind,source=$PWD/d,target=/y" base sleep 1000
		docker inspect shown >i; docker ps -a --format '{{.Mounts}}' --no-trunc --filter name=shown >>i; curl -s --unix-socket /var/run/docker.sock 'http://d/system/df' >>i
		is "$(docker inspect -f '{{range .Mounts}}{{.Destination}}={{.Source}} {{end}}' shown | tr ' ' '\n' | sort | tr '\n' ' ')" " /x=$PWD/l /y=$PWD/d "
		is "$(docker inspect -f '{{range .HostConfig.Mounts}}{{.Source}} {{end}}' shown | tr ' ' '\n' | sort | tr '\n' ' ')" " $PWD/d $PWD/l "
		! grep ` + boxMounts + ` i; fails "does not exist: $PWD/none" docker run --rm --mount "type=bind,source=$PWD/none,target=/x" base; docker rm shown`},
	{"kinds of sources", `
		echo x >f; is "$(docker run --rm -v "$PWD/f:/f" base cat /f)" x; fails "read-only" docker run --rm -v "$PWD:/x:ro" base touch /x/g
		fails "read-only" docker run --rm --mount "type=bind,source=$PWD,target=/x,readonly" base touch /x/g
		perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "s", Listen => 1)' || python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")'; is "$(docker run --rm -v "$PWD/s:/s" base stat -c %F /s)" socket
		mkdir -p a/b; echo y >a/b/c; is "$(docker run --rm -v "$PWD/a:/a" -v "$PWD/a/b/c:/a/b/d" base cat /a/b/d)" y
		for p in private rprivate slave rslave; do docker run --rm -v "$PWD/a:/a:$p" base ls /a/b/c; done
		docker run --rm --mount "type=bind,source=$PWD/a,target=/a,bind-recursive=disabled" base ls /a/b/c; (cd a; docker run --rm -v ./b:/b base ls /b/c)
		docker run --rm -v "$PWD/a:/a" --user 1234:1234 base sh -c 'ls /a/b/c; ! touch /a/x'; is "$(stat -c %U a/b/c)" sandbox`},
	{"volumes of another container", `
		echo x >f; docker create --name first -v "$PWD:/x" base; docker create --name heir --volumes-from first base cat /x/f; docker rm first; docker run --rm -v "$PWD:/x" base true
		is "$(docker start -a heir)" x; docker rm heir`},
	{"docker cp", `
		mkdir d; echo x >d/f; ln -s /etc/shadow d/l; docker create --name cp -v "$PWD/d:/x" base; docker cp cp:/x/f - | tar xO | grep x; echo y >g; docker cp g cp:/x/g; is "$(cat d/g)" y; is "$(stat -c %U d/g)" sandbox
		fails "" docker cp -L cp:/x/l got; test ! -s got; rm -r d; ln -s ` + boxSecret + `/open d; fails "" docker cp cp:/x/secret got; fails "" docker cp g cp:/x/g; test ! -e got; docker rm cp
		docker create --name tmp -v /tmp:/x base; fails "rule archive-bind" docker cp tmp:/x/guard-secret/open/secret -; docker rm tmp
		docker create --name nested -v "$PWD:/x" -v named:/x/y base; fails "rule archive-bind" docker cp nested:/x/g -; docker rm nested; docker volume rm named
		docker create --name whole -v ` + boxWork + `:/w base; docker cp whole:/bin/sh s; docker rm whole`},
	// CVE-2026-41567: the engine of the image must not have it.
	{"a program of the container's does not unpack for the engine", `
		for p in xz unpigz; do printf '#!/bin/sh\necho ran by $(id -u) >/ran-$0; cat\n' >$p; chmod 755 $p; done; sed -i 's|/ran-$0|/ran|' xz unpigz
		printf 'FROM base\nCOPY xz unpigz /bin/\n' >Dockerfile; docker build -q -t unpack .; docker create --name unpack unpack; tar c xz >plain; gzip -k plain; (printf '\3757zXZ\0'; cat plain) >x; gzip -k x; gzip -c plain.gz >twice
		put() { curl -s -T "$1" --unix-socket /var/run/docker.sock "http://d/containers/unpack/archive?path=/tmp"; }
		for f in plain.gz x x.gz twice; do put $f; done; docker export unpack | tar t >files; ! grep '^ran' files; is "$(grep -c '^tmp/xz$' files)" 1; docker rm unpack`},
	{"nothing is left", `
		for i in $(seq $(tries 50 200)); do docker rm "$(docker create -v "$PWD:/x" base)"; done >/dev/null; for i in $(seq 5); do docker run --rm -v "$PWD:/x" base true; done
		left() { grep -c " ` + boxMounts + `" /proc/self/mountinfo; }; one() { [ "$(left)" -le 1 ]; }; eventually one || { grep ` + boxMounts + ` /proc/self/mountinfo; docker ps -a; exit 1; }
		fails "" ls ` + boxMounts + ``},
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
	for _, dir := range []string{boxSecret, "/tmp/guard-secret"} {
		must(os.MkdirAll(dir+"/open", 0o755))
		must(os.WriteFile(dir+"/open/secret", []byte("root only\n"), 0o644))
		must(os.Chmod(dir, 0o700))
	}
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
		Binds: []string{boxWork, "/home/sandbox", "/tmp"}, Mounts: boxMounts, Log: log,
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
	t.Run("a restart of the engine", func(t *testing.T) { engineRestart(t, sh) })
	g.Close()
	if left, err := os.ReadDir(boxMounts); !os.IsNotExist(err) {
		t.Errorf("left: %v %v", left, err)
	}
}

// engineRestart has the engine end in the middle of the life of containers with binds.
func engineRestart(t *testing.T, sh func(dir, script string) (string, error)) {
	t.Helper()
	script := func(s string) {
		t.Helper()
		out, err := sh(boxWork, s)
		t.Log(out)
		if err != nil {
			t.Fatal(err)
		}
	}
	script(`echo x >f; docker create --name kept -v "$PWD/f:/f" base cat /f; docker run -d --init --name runs -v "$PWD:/x" base sleep 1000`)
	before, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"pgrep", "-x", "dockerd"}})
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(before)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	script(`eventually docker ps; docker run --rm -v "$PWD:/x" base true; is "$(docker start -a kept)" x; docker exec runs ls /x/f; docker restart -t 0 runs; docker exec runs ls /x/f; docker rm -f kept runs`)
}
