#!/bin/sh
# need.sh build|test|engine|base ...: installs missing packages of the distribution for that purpose, as root if any.
set -eu
cd "$(dirname "$0")/.."

packages=
want() { # want COMMAND PACKAGE
	command -v "$1" >/dev/null || packages="$packages $2"
}

die() {
	echo "need.sh: $*" >&2
	exit 1
}

# Any Go since 1.21 fetches the version of go.mod.
go_works() { command -v go >/dev/null && go env GOVERSION >/dev/null 2>&1; }

# The distribution's Go, or a newer package if that is older than 1.21.
go_package() {
	case $(apt-cache show golang-go 2>/dev/null | sed -n 's/^Version: 2:1\.\([0-9]*\).*/\1/p' | sort -rn | head -n 1) in
	"" | ? | 1? | 20) ;;
	*)
		echo golang-go
		return
		;;
	esac
	for v in 1.26 1.25 1.24 1.23 1.22 1.21; do
		if apt-cache show "golang-$v-go" >/dev/null 2>&1; then
			echo "golang-$v-go"
			return
		fi
	done
	die "Go is missing or too old: $go_hint"
}

go_hint="install Go $(sed -n 's/^go //p' go.mod) or newer (or any Go since 1.21 with GOTOOLCHAIN=auto), put its bin directory on PATH and try again"
need_go=
for purpose; do
	case $purpose in
	build)
		want git git
		want gzip gzip
		go_works || need_go=1
		;;
	test)
		want git git
		want bwrap bubblewrap # sandboxes without an engine
		want ip iproute2 # a second engine gets a network of its own
		want gcc gcc # the race detector links with it
		[ -e /usr/include/stdlib.h ] || packages="$packages libc6-dev"
		# Notebooks, by the Python that a jail has.
		for module in IPython ipykernel matplotlib nbformat; do
			/usr/bin/python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" 2>/dev/null ||
				packages="$packages python3-$(echo $module | tr IP ip)"
		done
		want ssh openssh-client
		want tmux tmux # terminals of sandboxes
		[ -x /usr/sbin/sshd ] || packages="$packages openssh-server" # not on every PATH
		;;
	engine)
		want dockerd docker.io
		want docker docker-cli
		want iptables iptables
		want flock util-linux
		[ -e /etc/ssl/certs/ca-certificates.crt ] || packages="$packages ca-certificates"
		;;
	base) want debootstrap debootstrap ;; # a base image where no registry answers
	*) die "unknown purpose $purpose" ;;
	esac
done
# An interrupted installation leaves broken packages that pass the checks above.
half=
if command -v dpkg-query >/dev/null && [ "$(id -u)" = 0 ]; then
	# shellcheck disable=SC2016 # the names are dpkg's
	half=$(dpkg-query -W -f='${db:Status-Status} ${db:Status-Eflag} ${binary:Package}\n' | sed -n 's/^\(unpacked\|half-[a-z]*\) .* //p; s/^[a-z-]* reinstreq //p' | sort -u | tr '\n' ' ')
fi
[ -n "$packages$need_go$half" ] || exit 0

if ! command -v apt-get >/dev/null; then
	[ -z "$need_go" ] || die "Go is missing or too old: $go_hint"
	die "missing:$packages: install them with this system's package manager"
fi
[ "$(id -u)" = 0 ] || die "missing:$packages${need_go:+ go}: run as root, or install them by hand"

export DEBIAN_FRONTEND=noninteractive
echo "need.sh: installing$packages${need_go:+ go}${half:+, and what was left half installed: $half}" >&2
# The deadline is for a stalled mirror: 300 MB pass on a slow line.
log=$(mktemp)
quietly() {
	"$@" >"$log" 2>&1 && return 0
	tail -n 30 "$log" >&2
	die "$* failed"
}
quietly timeout 300 apt-get update -q
[ -z "$need_go" ] || packages="$packages $(go_package)"
# docker.io includes the client on older releases.
apt-cache show docker-cli >/dev/null 2>&1 || packages=$(echo "$packages" | sed 's/docker-cli/docker.io/')
# An installed engine must not start by itself: its starter has to stop it.
policy=
trap 'rm -f "$log"' EXIT
if [ ! -e /usr/sbin/policy-rc.d ]; then
	policy=/usr/sbin/policy-rc.d
	trap 'rm -f "$policy" "$log"' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
fi
if [ -n "$half" ]; then
	# What is only unpacked is whole then; the rest is unpacked once more.
	timeout 600 dpkg --configure -a >"$log" 2>&1 || true
fi
# shellcheck disable=SC2086 # lists of packages
quietly timeout 1200 apt-get -o DPkg::Lock::Timeout=600 install -q -y --fix-broken --no-install-recommends ${half:+--reinstall} $packages $half
if [ -n "$need_go" ]; then
	# A versioned package is not on PATH.
	newest=$(ls -d /usr/lib/go-*/bin/go 2>/dev/null | sort -V | tail -n 1)
	if ! command -v go >/dev/null && [ -n "$newest" ]; then ln -s "$newest" /usr/local/bin/go; fi
	go_works || die "the distribution's Go is too old for this module: $go_hint"
fi
