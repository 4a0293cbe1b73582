here=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
root=
if [ -L "$here/root" ] || [ -d "$here/root" ]; then
	# This machine's programs, which a jail without such a folder has, are others.
	[ -d "$here/root/usr" ] || {
		echo "$name: the folder with its programs, $here/root, is gone or not yours to read: build it again" >&2
		exit 126
	}
	root=$(readlink -f -- "$here/root")
fi
command -v bwrap >/dev/null || {
	echo "$name: bubblewrap is missing: install the package bubblewrap" >&2
	exit 126
}
# What stands behind "--" in the jail: the interpreter, and where root runs this what takes root's rights from it.
if [ "$(id -u)" = 0 ]; then
	[ -x "$root/usr/bin/setpriv" ] || {
		echo "$name: root needs setpriv, of the package util-linux" >&2
		exit 126
	}
	set -- /usr/bin/setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs -- "$@"
	# Without a namespace of users, whose root would be root outside.
	spaces='--unshare-ipc --unshare-pid --unshare-uts --unshare-net --unshare-cgroup-try --cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID --cap-add CAP_SETPCAP'
else
	spaces='--unshare-all --unshare-user --uid 1000 --gid 1000 --cap-drop ALL'
fi
size=$((memory_mb * 1048576))
options() {
	# shellcheck disable=SC2086
	set -- $spaces --die-with-parent --new-session --hostname sandbox --clearenv --setenv PATH /usr/local/bin:/usr/bin:/bin --setenv LANG C.UTF-8 \
		--setenv HOME /workspace --setenv TMPDIR /workspace --ro-bind "$root/usr" /usr
	for d in bin sbin lib lib32 lib64 libx32; do
		if [ -L "$root/$d" ]; then
			set -- "$@" --symlink "$(readlink -- "$root/$d")" "/$d"
		elif [ -d "$root/$d" ]; then
			set -- "$@" --ro-bind "$root/$d" "/$d"
		fi
	done
	set -- "$@" --perms 0755 --dir /etc
	for f in alternatives ssl/certs pki/tls/certs fonts ld.so.cache ssl/openssl.cnf services protocols matplotlibrc; do
		[ ! -e "$root/etc/$f" ] || set -- "$@" --ro-bind "$root/etc/$f" "/etc/$f"
	done
	for f in passwd group nsswitch.conf hosts; do
		set -- "$@" --ro-bind "$here/etc/$f" "/etc/$f"
	done
	set -- "$@" --proc /proc --ro-bind /proc/sys /proc/sys --dev /dev
	for d in /dev/shm /tmp /workspace; do
		set -- "$@" --perms 1777 --size "$size" --tmpfs "$d"
	done
	if [ -n "${SANDBOX_AGENT_PROJECT_DIR-}" ]; then
		set -- "$@" --ro-bind "$SANDBOX_AGENT_PROJECT_DIR" "$project_mount"
	fi
	for v in $inherit; do
		eval "[ -z \"\${$v+x}\" ] || set -- \"\$@\" --setenv $v \"\$$v\""
	done
	set -- "$@" --remount-ro /dev --remount-ro / --chdir /workspace
	printf '%s\0' "$@"
}
if [ -n "${SANDBOX_AGENT_PROJECT_DIR-}" ] && [ ! -d "$SANDBOX_AGENT_PROJECT_DIR" ]; then
	echo "$name: SANDBOX_AGENT_PROJECT_DIR is no folder" >&2
	exit 126
fi
foreground=
[ ! -t 0 ] || foreground=--foreground
ulimit -d $((memory_mb * 1024))
ulimit -c 0
exec 3<&0
# The options go by a pipe: a command line is everybody's to read, and values of variables are among them.
if [ -r "$here/filter-$(uname -m)" ]; then
	# shellcheck disable=SC2086
	options | timeout $foreground -k 2 "$timeout_seconds" bwrap --args 4 --seccomp 5 -- "$@" 4<&0 0<&3 3<&- 5<"$here/filter-$(uname -m)"
else
	# shellcheck disable=SC2086
	options | timeout $foreground -k 2 "$timeout_seconds" bwrap --args 4 -- "$@" 4<&0 0<&3 3<&-
fi
