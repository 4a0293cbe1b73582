sa_here=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
sa_root=
if [ -L "$sa_here/root" ] || [ -d "$sa_here/root" ]; then
	# This machine's programs, which a jail without such a folder has, are others.
	[ -d "$sa_here/root/usr" ] || {
		echo "$sa_name: the folder with its programs, $sa_here/root, is gone or not yours to read: build it again" >&2
		exit 126
	}
	sa_root=$(readlink -f -- "$sa_here/root")
fi
command -v bwrap >/dev/null || {
	echo "$sa_name: bubblewrap is missing: install the package bubblewrap" >&2
	exit 126
}
# What stands behind "--" in the jail: the interpreter, and where root runs this what takes root's rights from it.
if [ "$(id -u)" = 0 ]; then
	[ -x "$sa_root/usr/bin/setpriv" ] || {
		echo "$sa_name: root needs setpriv, of the package util-linux" >&2
		exit 126
	}
	set -- /usr/bin/setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs -- "$@"
	# Without a namespace of users, whose root would be root outside.
	sa_spaces='--unshare-ipc --unshare-pid --unshare-uts --unshare-net --unshare-cgroup-try --cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID --cap-add CAP_SETPCAP'
else
	sa_spaces='--unshare-all --unshare-user --uid 1000 --gid 1000 --cap-drop ALL'
fi
sa_size=$((sa_memory_mb * 1048576))
options() {
	# shellcheck disable=SC2086
	set -- $sa_spaces --die-with-parent --new-session --hostname sandbox --clearenv --setenv PATH /usr/local/bin:/usr/bin:/bin --setenv LANG C.UTF-8 \
		--setenv HOME /workspace --setenv TMPDIR /workspace --ro-bind "$sa_root/usr" /usr
	for sa_d in bin sbin lib lib32 lib64 libx32; do
		if [ -L "$sa_root/$sa_d" ]; then
			set -- "$@" --symlink "$(readlink -- "$sa_root/$sa_d")" "/$sa_d"
		elif [ -d "$sa_root/$sa_d" ]; then
			set -- "$@" --ro-bind "$sa_root/$sa_d" "/$sa_d"
		fi
	done
	set -- "$@" --perms 0755 --dir /etc
	for sa_f in alternatives ssl/certs pki/tls/certs fonts ld.so.cache ssl/openssl.cnf services protocols matplotlibrc; do
		[ ! -e "$sa_root/etc/$sa_f" ] || set -- "$@" --ro-bind "$sa_root/etc/$sa_f" "/etc/$sa_f"
	done
	for sa_f in passwd group nsswitch.conf hosts; do
		set -- "$@" --ro-bind "$sa_here/etc/$sa_f" "/etc/$sa_f"
	done
	set -- "$@" --proc /proc --ro-bind /proc/sys /proc/sys --dev /dev
	# What tells of the whole machine, as engines hide it.
	for sa_f in interrupts kcore keys latency_stats sched_debug timer_list timer_stats; do
		[ ! -e "/proc/$sa_f" ] || set -- "$@" --dev-bind /dev/null "/proc/$sa_f"
	done
	for sa_d in acpi asound scsi; do
		[ ! -d "/proc/$sa_d" ] || set -- "$@" --size 4096 --tmpfs "/proc/$sa_d" --remount-ro "/proc/$sa_d"
	done
	for sa_d in /dev/shm /tmp /workspace; do
		set -- "$@" --perms 1777 --size "$sa_size" --tmpfs "$sa_d"
	done
	if [ -n "${SANDBOX_AGENT_PROJECT_DIR-}" ]; then
		set -- "$@" --ro-bind "$SANDBOX_AGENT_PROJECT_DIR" "$sa_project_mount"
	fi
	for sa_v in $sa_inherit; do
		eval "[ -z \"\${$sa_v+x}\" ] || set -- \"\$@\" --setenv $sa_v \"\$$sa_v\""
	done
	set -- "$@" --remount-ro /dev --remount-ro / --chdir /workspace
	printf '%s\0' "$@"
}
if [ -n "${SANDBOX_AGENT_PROJECT_DIR-}" ] && [ ! -d "$SANDBOX_AGENT_PROJECT_DIR" ]; then
	echo "$sa_name: SANDBOX_AGENT_PROJECT_DIR is no folder" >&2
	exit 126
fi
sa_filter=$sa_here/filter-$(uname -m)
[ -r "$sa_filter" ] || {
	echo "$sa_name: there is no filter of system calls for this kind of machine, $(uname -m): build the artifact here" >&2
	exit 126
}
sa_foreground=
[ ! -t 0 ] || sa_foreground=--foreground
ulimit -d $((sa_memory_mb * 1024))
ulimit -c 0
exec 3<&0
# The options go by a pipe: a command line is everybody's to read, and values of variables are among them.
# shellcheck disable=SC2086
options | timeout $sa_foreground -k 2 "$sa_timeout_seconds" bwrap --args 4 --seccomp 5 -- "$@" 4<&0 0<&3 3<&- 5<"$sa_filter"
