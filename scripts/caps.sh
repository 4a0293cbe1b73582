#!/bin/bash
# Tests the box's capabilities: for each one it does the same work in a real box without it, and prints what fails first.
# usage: caps.sh [CAPABILITY...]   (default: all of the list; a box with the list and nothing more comes first)
# RUN=0 skips whole runs and tests only what root in the box does.
set -euo pipefail
cd "$(dirname "$0")/.."
image=${IMAGE:-$(./bin/sandbox-agent image build | awk 'END {print $NF}')}
# The list is the program's own: one word a line.
mapfile -t list < <(sed -n '/^var confinedCaps/,/^}/s/^\t"\([A-Z_]*\)".*/\1/p' internal/host/runtime/docker/spec.go)
[ ${#list[@]} -gt 0 ] || { echo "caps.sh: no list in internal/host/runtime/docker/spec.go" >&2; exit 1; }
checks=internal/host/doctor/files
[ -e "$checks/checks.sh" ] || { echo "caps.sh: checks.sh is not found" >&2; exit 1; }

dir=$(mktemp -d)
box=sandbox-agent-caps-$$
server=
finish() {
	docker rm -f -v "$box" >/dev/null 2>&1 || true
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$dir"
}
trap finish EXIT

# The repository that boxes clone and push to, reachable from this machine's boxes.
address=$(docker network inspect bridge -f '{{(index .IPAM.Config 0).Gateway}}')
port=${PORT:-9491}
mkdir "$dir/work"
cp "$checks"/* "$dir/work/"
# Images may hold device nodes and files of other groups with set-group-id.
cat >"$dir/work/nodes.sh" <<'SH'
cat >/tmp/nodes.py <<'PY'
import sys, tarfile
t = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
n = tarfile.TarInfo("null"); n.type, n.mode, n.devmajor, n.devminor = tarfile.CHRTYPE, 0o666, 1, 3
t.addfile(n)
t.add("/usr/bin/busybox", "busybox")
n = tarfile.TarInfo("sgid"); n.mode, n.gid = 0o2755, 7
t.addfile(n)
t.close()
PY
one() {
	if out=$(timeout 60 bash -euo pipefail -c "$2" 2>&1 </dev/null); then echo "ok $1"; else echo "FAIL $1|$(echo "$out" | tail -n 1)"; fi >>report
}
one "an image with a device node" 'python3 /tmp/nodes.py | docker import - nodes'
one "set-group-id in an image" 'docker run --rm nodes /busybox test -g /sgid'
SH
git -C "$dir/work" init -q -b main
git -C "$dir/work" add -A
git -C "$dir/work" -c user.name=x -c user.email=x@example.org commit -qm checks
git daemon --base-path="$dir" --export-all --enable=receive-pack --listen="$address" --port="$port" --reuseaddr "$dir" >/dev/null 2>&1 &
server=$!

# For the checks of compose; the engine tests build it. Without it, those checks do not count.
redis=${REDIS:-sandbox-agent-e2e/redis}
redis_in=()
if docker save "$redis" -o "$dir/redis.tar" 2>/dev/null; then
	chmod 644 "$dir/redis.tar"
	redis_in=(-v "$dir/redis.tar:/redis.tar:ro")
fi

# flags CAPABILITY...: how a confined box is made (internal/host/runtime/docker/spec.go).
flags() {
	echo --cap-drop ALL
	for c in "$@"; do echo "--cap-add $c"; done
	echo --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined --device /dev/fuse
}

# order ID: the document that PID 1 reads.
order() {
	cat <<-JSON
	{"order": {"version": 1, "task_id": "$1", "mode": "create", "attempt_id": "00000000000000aa", "project": "caps", "task": "use docker",
	 "repo": "git://$address:$port/r.git", "clone_url": "git://$address:$port/r.git", "branch": "main", "target_branch": "agent/$1-caps",
	 "packages": ["busybox-static", "iputils-ping"], "timeout_minutes": 5, "network": {"mode": "full"},
	 "author": {"name": "Caps", "email": "caps@example.org"}, "env": {"REDIS_IMAGE": "$redis"}, "limits": {},
	 "harness": {"name": "command", "command": ["bash", "-c", "export SANDBOX_NETWORK=sandbox-agent-$1; bash checks.sh lazy; test ! -e /redis.tar || docker load -q -i /redis.tar; bash checks.sh services; bash nodes.sh; exit 0"]}}}
	JSON
}

# What root in the box does in a run, or what a package may need: name and script.
probes=(
	"chown a file"                'touch /tmp/x; chown sandbox /tmp/x'
	"read a file of sandbox"      '$AS sh -c "umask 077; echo x >/home/sandbox/p"; cat /home/sandbox/p'
	"chmod a file of sandbox"     'chmod 700 /home/sandbox; chmod 755 /home/sandbox'
	"become sandbox"              'setpriv --reuid sandbox --regid sandbox --init-groups --no-new-privs id -u'
	"set-group-id of a file"      'touch /tmp/s; chgrp sandbox /tmp/s; chmod 2755 /tmp/s; test -g /tmp/s'
	"kill a process of sandbox"   '$AS sleep 60 & p=$!; eventually other $p; kill -9 $p'
	"look into one of sandbox"    '$AS sleep 60 & p=$!; eventually other $p; readlink /proc/$p/cwd'
	"listen on port 53"           'python3 -c "import socket; socket.socket().bind((\"127.0.0.1\", 53))"'
	"nft rules"                   'nft add table inet t; nft list tables | grep -q t'
	"make a bridge"               'ip link add cp0 type bridge; ip link set cp0 up'
	"mount overlay"               'cd /var/lib/docker; mkdir l u w m; mount -t overlay o -o lowerdir=l,upperdir=u,workdir=w m; touch m/x'
	"whiteout in an overlay"      'cd /var/lib/docker; mkdir l1 u1 w1 m1; touch l1/x; mount -t overlay o -o lowerdir=l1,upperdir=u1,workdir=w1 m1; rm m1/x; test -c u1/x'
	"mount with fuse-overlayfs"   'cd /var/lib/docker; mkdir l2 u2 w2 m2; touch l2/x; fuse-overlayfs -o lowerdir=l2,upperdir=u2,workdir=w2 m2; touch m2/y; rm m2/x'
	"make a device node"          'mknod /tmp/null c 1 3'
	"a new root"                  'mkdir -p /tmp/r; mount --bind / /tmp/r; chroot /tmp/r true'
	"maps of a user namespace"    'unshare --user sleep 60 & p=$!; eventually apart $p; echo "0 1000 1" >/proc/$p/uid_map'
	"a map with root"             'unshare --user sleep 60 & p=$!; eventually apart $p; echo "0 0 1" >/proc/$p/uid_map'
	"capabilities of a file"      'cp /bin/true /tmp/c; setcap cap_net_raw+ep /tmp/c'
	"ping as sandbox"             '$AS ping -c 1 -W 2 127.0.0.1'
	"a raw socket of root"        'python3 -c "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"'
	"drop from the bounding set"  'setpriv --bounding-set -net_raw true'
	"su"                          'su sandbox -s /bin/sh -c true'
	"packages"                    'apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends redis-server openssh-client; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --reinstall iputils-ping'
)

# Shared by the probes. Their processes end with the box.
shared='
export AS="setpriv --reuid sandbox --regid sandbox --clear-groups --no-new-privs"
other() { [ "$(stat -c %u /proc/$1)" != 0 ]; }
apart() { [ "$(readlink /proc/$1/ns/user)" != "$(readlink /proc/self/ns/user)" ]; }
eventually() { for _ in $(seq 300); do "$@" && return; sleep 0.01; done; return 1; }
export -f other apart eventually
export LC_ALL=C
'

# look CAPABILITY...: runs the probes in a box with these; one line per failure.
look() {
	local script=$shared i
	for ((i = 0; i < ${#probes[@]}; i += 2)); do
		script+="timeout 90 bash -euo pipefail -c $(printf %q "${probes[i + 1]}") >/tmp/said 2>&1 </dev/null ||"
		script+=" echo \"FAIL ${probes[i]}: \$(grep -v '^\$' /tmp/said | tail -n 1 | cut -c 1-160)\""$'\n'
	done
	# shellcheck disable=SC2046 # words
	docker run --rm --name "$box" $(flags "$@") --entrypoint bash "$image" -c "$script"$'\n'true 2>&1 || echo "FAIL start: the box does not start"
}

# whole CAPABILITY...: runs the real boot; one line per failed check or step.
whole() {
	local id=T-CAPS0001 out=$dir/events
	# Anew for every box: what a former one left would count as this one's.
	rm -rf "$dir/r.git"
	git clone -q --bare "$dir/work" "$dir/r.git"
	order "$id" >"$dir/order"
	# shellcheck disable=SC2046
	timeout 600 docker run -i --name "$box" $(flags "$@") "${redis_in[@]}" "$image" <"$dir/order" >"$out" 2>"$dir/err" || true
	docker rm -f -v "$box" >/dev/null 2>&1 || true
	if git --git-dir "$dir/r.git" cat-file -e "agent/$id-caps:report" 2>/dev/null; then
		git --git-dir "$dir/r.git" show "agent/$id-caps:report" | grep ^FAIL | cut -c 1-220 || true
		git --git-dir "$dir/r.git" show "agent/$id-caps:report" | grep -c ^ok >"$dir/ok" || true
	else
		echo "FAIL run: $(python3 -c '
import json, sys
why = ""
for line in open(sys.argv[1]):
    try: e = json.loads(line)
    except ValueError: continue
    r = e.get("result")
    if r: why = r.get("status", "") + ": " + r.get("reason", "")
print(why.splitlines()[0][:200] if why else "")' "$out") $(tail -n 1 "$dir/err" | cut -c 1-200)"
	fi
	# What is said along the way, such as a driver that is not the best.
	grep -o '"type":"warning"[^}]*"text":"[^"]*' "$out" | sed 's/.*"text":"/WARN /' | cut -c 1-200 || true
}

without() {
	local c
	for c in "${list[@]}"; do [ "$c" = "$1" ] || echo "$c"; done
}

# Docker's defaults, and those that the box had before.
known=(AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_ADMIN NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_ADMIN SYS_CHROOT SYS_PTRACE)

# run CAPABILITY...: prints all that fails with these.
run() {
	look "$@"
	[ "${RUN:-1}" = 0 ] || whole "$@"
}

# row NAME BEFORE: a line of the table with what fails now and not in the file BEFORE.
row() {
	awk -F'[:|]' 'FILENAME == ARGV[1] {seen[$1] = 1; next} !($1 in seen)' "$2" "$dir/now" >"$dir/new"
	if [ -s "$dir/new" ]; then
		echo "| $1 | $(head -n "${SHOWN:-4}" "$dir/new" | sed 's/|/; /g; s/^FAIL //' | paste -sd'#' | sed 's/#/<br>/g') |"
	else
		echo "| $1 | nothing |"
	fi
}

# Failures with all of them have other reasons (no registry, no service) and do not count.
run "${known[@]}" >"$dir/base"
echo "with all of ${known[*]}: $(cat "$dir/ok" 2>/dev/null || echo 0) checks of Docker pass, and not counted are:"
sed 's/^/    /' "$dir/base"
echo
echo "| capability | what fails without it |"
echo "| --- | --- |"
rm -f "$dir/ok"
run "${list[@]}" >"$dir/now"
row "every one but ${list[*]} ($(cat "$dir/ok" 2>/dev/null || echo 0) checks of Docker pass)" "$dir/base"
cp "$dir/now" "$dir/listed"
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=("${list[@]}")
for c in "${wanted[@]}"; do
	[ "$c" != LIST ] || continue # it was the first
	mapfile -t rest < <(without "$c")
	run "${rest[@]}" >"$dir/now"
	row "$c" "$dir/listed"
done
