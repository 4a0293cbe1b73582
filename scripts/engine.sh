#!/bin/sh
# engine.sh start|stop|status
#
# start ensures that a Docker engine answers: otherwise it installs one (Debian and Ubuntu, as root) and starts it.
# stop ends only an engine that start has started.
set -eu

state=/run/sandbox-agent-engine # root's own, gone with the machine, like the process it names
log=/var/log/sandbox-agent-engine.log
start_deadline=90 # seconds; a first start on a slow disk took 6
stop_deadline=45  # seconds; the engine grants its containers 15

say() { echo "engine.sh: $*" >&2; }
die() {
	say "$*"
	exit 1
}

answers() {
	command -v docker >/dev/null && timeout 15 docker version --format '{{.Server.Version}}' >/dev/null 2>&1
}

# born PID: start time of a process, to recognise a reused process id.
born() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

ours() {
	[ -f "$state/pid" ] || return 1
	read -r pid start <"$state/pid"
	[ -n "$start" ] && [ "$(born "$pid")" = "$start" ]
}

install_engine() {
	command -v dockerd >/dev/null && command -v docker >/dev/null && return 0
	say "installing a Docker engine"
	"$(dirname "$0")/need.sh" engine
}

# A container or minimal VM may lack mounted cgroups.
mount_cgroups() {
	[ -z "$(ls -A /sys/fs/cgroup 2>/dev/null)" ] || return 0
	if grep -q '^nodev[[:space:]]*cgroup2$' /proc/filesystems && ! awk '!/^#/ && $2 != 0 {f = 1} END {exit !f}' /proc/cgroups; then
		mount -t cgroup2 cgroup2 /sys/fs/cgroup && return 0
	fi
	mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup || return 0
	awk '!/^#/ && $4 == 1 {print $1}' /proc/cgroups | while read -r c; do
		mkdir -p "/sys/fs/cgroup/$c"
		mount -t cgroup -o "$c" cgroup "/sys/fs/cgroup/$c" || rmdir "/sys/fs/cgroup/$c"
	done
}

# Without nftables in the kernel, the legacy iptables may work: only the engine's PATH has it.
iptables_path() {
	if ! iptables -w -nL >/dev/null 2>&1 && iptables-legacy -w -nL >/dev/null 2>&1; then
		mkdir -p "$state/bin"
		for t in iptables ip6tables iptables-save ip6tables-save iptables-restore ip6tables-restore; do
			ln -sf "$(command -v "${t%%-*}-legacy${t#"${t%%-*}"}")" "$state/bin/$t"
		done
		echo "$state/bin:$PATH"
	else
		echo "$PATH"
	fi
}

start() {
	answers && return 0
	[ -z "${DOCKER_HOST:-}" ] || die "DOCKER_HOST is $DOCKER_HOST and nothing answers there: start that engine or unset DOCKER_HOST"
	[ "$(uname -s)" = Linux ] || die "no Docker engine answers: start Docker Desktop (or colima) and try again"
	[ "$(id -u)" = 0 ] || die "no Docker engine answers, and only root can start one: run as root, or start the engine and join the group docker"
	mkdir -p "$state"
	exec 9>"$state/lock"
	flock -w 600 9 || die "another engine.sh holds $state/lock"
	answers && return 0
	install_engine
	answers && return 0
	if [ -d /run/systemd/system ] && systemctl start docker >/dev/null 2>&1 9>&-; then
		echo systemd >"$state/how"
	else
		mount_cgroups
		# What a killed engine left behind would make this one refuse to start.
		if [ -f /run/docker.pid ] && ! grep -qs dockerd "/proc/$(cat /run/docker.pid)/comm"; then rm -f /run/docker.pid; fi
		# Nothing of the caller's is held open, such as the lock it may hold while this starts.
		PATH=$(iptables_path) setsid dockerd </dev/null >"$log" 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- &
		pid=$!
		echo "$pid $(born $pid)" >"$state/pid"
		echo process >"$state/how"
	fi
	say "starting the engine (log: $log)"
	i=0
	until answers; do
		i=$((i + 1))
		if [ "$(cat "$state/how")" = process ] && ! ours; then
			tail -n 15 "$log" >&2
			die "the engine ended at once, see $log"
		fi
		if [ $i -ge $start_deadline ]; then
			stop
			tail -n 15 "$log" >&2
			die "the engine did not answer within $start_deadline s, see $log"
		fi
		sleep 1
	done
}

stop() {
	[ -f "$state/how" ] || return 0
	if [ "$(cat "$state/how")" = systemd ]; then
		systemctl stop docker.service docker.socket >/dev/null 2>&1 || true
	elif ours; then
		read -r pid start <"$state/pid"
		kill -TERM "$pid"
		i=0
		while [ "$(born "$pid")" = "$start" ] && [ $i -lt $((stop_deadline * 5)) ]; do
			sleep 0.2
			i=$((i + 1))
		done
		if [ "$(born "$pid")" = "$start" ]; then
			say "the engine did not stop within $stop_deadline s: killing it"
			# Its containerd would outlive it: it is the only child we know of.
			children=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null || true)
			# shellcheck disable=SC2086 # a list of process ids
			kill -KILL "$pid" $children 2>/dev/null || true
		fi
	fi
	rm -rf "$state/how" "$state/pid" "$state/bin"
}

case ${1:-} in
start) start ;;
stop) stop ;;
status) answers && echo "an engine answers" || die "no Docker engine answers" ;;
*)
	echo "usage: $0 start|stop|status" >&2
	exit 64
	;;
esac
