# Uses Docker as people do, and writes one line for each check to the file report, and
# behind "check: " to standard output: "ok NAME" or "FAIL NAME" and what it printed. It
# goes on after a failure.
# usage: checks.sh lazy | services   (in the workspace, as the agent)
cd "$(dirname "$0")" || exit 1
export HERE=$PWD ADDRESS
ADDRESS=$(hostname -i | cut -d' ' -f1)

# tell LINE: a line of the report.
tell() {
	echo "$1" >>report
	echo "check: $1"
}

# check NAME SCRIPT: every command of the script has to succeed.
check() {
	echo "== $1"
	if out=$(timeout 120 bash -euo pipefail -c "$2" 2>&1 </dev/null); then
		tell "ok $1"
	else
		tell "FAIL $1|exit code $?|$(echo "$out" | tail -n 8 | tr '\n' '|')"
	fi
	docker ps -aq --filter name=^/e- 2>/dev/null | xargs -r docker rm -f >/dev/null 2>&1
}

# fails PATTERN COMMAND...: the command fails and says why.
fails() {
	local pattern=$1 out
	shift
	if out=$("$@" 2>&1); then
		echo "succeeded: $* printed $out"
		return 1
	fi
	grep -Eqi -e "$pattern" <<<"$out" || { echo "$* said: $out"; return 1; }
}

is() { [ "$1" = "$2" ] || { echo "got '$1', want '$2'"; return 1; }; }

# eventually COMMAND...: succeeds within 20 seconds.
eventually() {
	for _ in $(seq 100); do
		"$@" && return
		sleep 0.2
	done
	echo "never: $*"
	return 1
}

# serve PORT TEXT: a web server of the agent, for the length of the check.
serve() {
	mkdir -p "/tmp/www-$1"
	echo "$2" >"/tmp/www-$1/index.html"
	busybox httpd -f -p "$1" -h "/tmp/www-$1" &
	trap "kill $!" EXIT
	eventually curl -fs -o /dev/null "http://127.0.0.1:$1/"
}

# No registry answers here, so the base image is made of one static program.
base_image() {
	mkdir -p root/bin root/tmp root/etc
	cp "$(command -v busybox)" root/bin/busybox
	for a in $(busybox --list); do
		[ "$a" = busybox ] || ln -s busybox "root/bin/$a"
	done
	echo root:x:0:0::/root:/bin/sh >root/etc/passwd
	tar -C root -c . | docker import -c 'CMD ["sh"]' - base
	rm -r root
}
export -f fails is eventually serve base_image

lazy() {
	check "nothing ran before the first command" 'fails "" pgrep -x dockerd'
	check "the first command starts the engine" 'docker version --format "{{.Server.Version}}"; pgrep -x dockerd'
	check "import" base_image
	check "run" 'is "$(docker run --rm base echo hello)" hello'
	check "build" 'docker build -t app .; is "$(docker run --rm app cat /made)" "made by root"'
	check "buildx with an argument" 'docker buildx build --no-cache --progress plain --load -t app2 --build-arg WHO=me . >log 2>&1; grep "made by me" log; rm log; docker image inspect app2'
	check "build reaches the network" 'serve 8099 x; docker build --build-arg URL="http://$ADDRESS:8099/" -f net.Dockerfile .'
	check "save and load" 'docker save app -o app.tar; docker rmi -f app; docker load -i app.tar; rm app.tar; docker run --rm app true'
	check "tag, history, rmi" 'docker tag app other:1; docker history -q other:1; docker inspect other:1; docker rmi other:1'
	check "cp" 'docker create --name e-cp base true; docker cp Dockerfile e-cp:/tmp/d; docker cp e-cp:/tmp/d copied; cmp Dockerfile copied; rm copied'
	check "memory limit" 'is "$(docker run --rm -m 64m base sh -c "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max")" 67108864'
	# The kernel's own count: the engine's OOMKilled is false where its event comes after the container's end.
	check "memory limit holds" 'is "$(docker run --rm -m 16m --memory-swap 16m base sh -c "tail /dev/zero; echo \$?; cat /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events 2>/dev/null | grep -x oom_kill.1" | tr "\n" " ")" "137 oom_kill 1 "'
	check "other limits" 'docker run --rm --cpus 0.5 --pids-limit 50 --ulimit nofile=100 --shm-size 8m --tmpfs /t --read-only base sh -ec "test \$(ulimit -n) = 100; touch /t/x; ! touch /x"'
	check "restart policy" 'docker run -d --name e-again --restart on-failure:2 base false; eventually sh -c "docker inspect -f {{.RestartCount}} e-again | grep -q 2"'
	check "exit code" 'c=0; docker run --rm base sh -c "exit 42" || c=$?; is $c 42'
	check "stop" 'docker run -d --init --name e-stop base sleep 1000; docker stop -t 5 e-stop; is "$(docker inspect -f "{{.State.ExitCode}}" e-stop)" 143'
	check "stdin" 'is "$(echo from stdin | docker run --rm -i base cat)" "from stdin"'
	check "prune" 'docker system prune -af --volumes; is "$(docker images -q)" ""'
}

services() {
	check "import" base_image
	check "build" 'docker build -t app .'

	check "compose up" 'docker compose up -d --wait; is "$(docker compose ps --format "{{.Service}} {{.Health}}" web)" "web healthy"'
	check "compose depends_on service_healthy" 'docker compose logs --no-log-prefix client >log; grep "the answer is 42" log; rm log'
	check "compose exec -T" 'is "$(echo data | docker compose exec -T web cat)" data'
	check "compose logs" 'docker compose logs --no-color web >log; grep serving log; rm log'
	check "named volume survives" 'docker compose exec -T web sh -c "echo kept >/data/kept"; docker compose rm -sf web; docker compose up -d --wait web; is "$(docker compose exec -T web cat /data/kept)" kept'
	check "published port at localhost" 'is "$(curl -fsS http://localhost:8081/)" 42'
	check "published port at the address" 'is "$(curl -fsS "http://$ADDRESS:8082/")" 42; fails connect curl -fsS "http://$ADDRESS:8081/"'
	check "compose has a store of its own" 'docker compose exec -T store redis-cli set a 1; is "$(docker compose exec -T store redis-cli get a)" 1; is "$(printf "GET a\r\nQUIT\r\n" | nc redis 6379 | tr -d "\r\n")" "\$-1+OK"'
	check "compose down" 'docker compose down -v --timeout 1; is "$(docker compose ps -q)" ""'

	check "exec" 'docker run -d --name e-box app sleep 1000; is "$(docker exec -e A=b -w /etc e-box sh -c "echo \$A \$PWD")" "b /etc"; is "$(docker exec -u 1000 e-box id -u)" 1000'
	check "healthcheck" 'docker run -d --name e-health --health-cmd "test -e /tmp/up" --health-interval 1s app sh -c "sleep 2; touch /tmp/up; sleep 1000"; eventually sh -c "docker inspect -f {{.State.Health.Status}} e-health | grep -qx healthy"'
	check "logs -f" 'docker run -d --name e-say app sh -c "for i in 1 2 3; do echo line \$i; sleep 0.1; done"; is "$(docker logs -f e-say | tr "\n" " ")" "line 1 line 2 line 3 "'

	check "bind mount writes as sandbox" 'mkdir bound; docker run --rm -v "$HERE/bound:/w" app sh -c "id -u >/w/uid; mkdir /w/d; touch /w/d/f"; is "$(cat bound/uid)" 0; is "$(stat -c %U bound/uid bound/d bound/d/f | sort -u)" sandbox; rm -r bound'
	check "bind mount of a file is read" 'is "$(docker run --rm -v "$HERE/Dockerfile:/f:ro" app head -n 1 /f)" "FROM base"'
	check "a folder of root is not bound" 'fails "rule bind" docker run --rm -v /etc:/x app touch /x/owned; test ! -e /etc/owned; fails "rule bind" docker run --rm -v /:/x app true; ln -s /etc link; fails "rule bind" docker run --rm -v "$HERE/link:/x" app true; rm link'
	check "root of a container is the agent" 'is "$(docker run --rm app cat /proc/self/uid_map | head -n 1 | tr -s " ")" " 0 1000 1"; mkdir own; docker run --rm -v "$HERE/own:/x" app touch /x/f; is "$(stat -c %u own/f)" "$(id -u)"; rm -r own'
	check "privileged is refused" 'fails "rule privileged" docker run --rm --privileged app true'
	check "no disk of the machine" 'fails "rule capability" docker run --rm --cap-add ALL app true; fails "not permitted" docker run --rm app mknod /tmp/d b 254 0'

	check "the agent reaches the service" 'is "$(printf "PING\r\nQUIT\r\n" | nc redis 6379 | head -c 5)" +PONG'
	check "the service from the default bridge" 'docker run --rm app sh -c "printf \"PING\r\nQUIT\r\n\" | nc redis 6379" | grep PONG'
	check "the service from its own network" 'docker run --rm --network "$SANDBOX_NETWORK" app sh -c "printf \"PING\r\nQUIT\r\n\" | nc redis 6379" | grep PONG'
	check "the service from another network" 'docker network create own; docker run --rm --network own app sh -c "printf \"PING\r\nQUIT\r\n\" | nc redis 6379" | grep PONG'
	check "names on another network" 'docker run -d --name e-peer --network own app sh -c "mkdir /w; echo peer >/w/index.html; httpd -f -p 80 -h /w"; eventually docker run --rm --network own app wget -q -O /dev/null http://e-peer/'
	check "the agent's server from a container" 'serve 8098 agent; is "$(docker run --rm --add-host host.docker.internal:host-gateway app wget -q -O - http://host.docker.internal:8098/)" agent'
	check "the socket in a container" 'c=$(mktemp -d); for f in "$(type -P curl)" $(ldd "$(type -P curl)" | grep -o "/[^ ]*"); do cp -L --parents "$f" "$c/"; done; printf "FROM app\nCOPY . /\n" >curl.Dockerfile; docker build -q -t curl -f curl.Dockerfile "$c"; rm -r "$c" curl.Dockerfile; docker run --rm --user 0:0 -v /var/run/docker.sock:/var/run/docker.sock curl curl -fsS --unix-socket /var/run/docker.sock http://docker/_ping | grep OK; fails "rule privileged" docker run --rm --user 0:0 -v /var/run/docker.sock:/var/run/docker.sock curl curl -sS --unix-socket /var/run/docker.sock -H "Content-Type: application/json" -d "{\"Image\":\"app\",\"HostConfig\":{\"Privileged\":true}}" --fail-with-body http://docker/containers/create'
	check "the service lives on" 'is "$(docker inspect -f "{{.State.Running}} {{.RestartCount}}" redis)" "true 0"'
}

"$1"
