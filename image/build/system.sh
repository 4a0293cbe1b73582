# Installs the inner engine, tools and languages from the distribution.
. /tmp/build/lib.sh

# A box is temporary: fsync has no use, and documentation only costs space.
cat >/etc/dpkg/dpkg.cfg.d/sandbox-agent <<'EOF'
force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/lintian/*
EOF
cat >/etc/apt/apt.conf.d/90sandbox-agent <<'EOF'
Acquire::Retries "3";
Acquire::Languages "none";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
EOF
# Services must not start during the build.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d

case $ID in
# crun starts containers faster than runc, but Ubuntu's crun (1.14) fails with
# Ubuntu's Docker (29): "unknown version specified".
ubuntu) docker="docker.io docker-buildx docker-compose-v2" ;;
debian) docker="docker.io docker-cli docker-buildx docker-compose crun" ;;
*)
	echo "base system $ID is not supported: use Ubuntu 24.04 or Debian 13" >&2
	exit 1
	;;
esac
apt-get update -q
# The base image may lack recent security fixes.
apt-get upgrade -q -y --no-install-recommends
# shellcheck disable=SC2086 # a list of packages
install $docker containerd runc fuse-overlayfs iptables nftables iproute2 iputils-ping \
	ca-certificates curl wget jq ripgrep git git-lfs openssh-client gnupg tmux procps psmisc lsof less file patch \
	xz-utils zip unzip bzip2 zstd rsync tzdata netcat-openbsd sqlite3 \
	build-essential pkg-config python3 python3-pip python3-venv python3-dev python-is-python3
update-ca-certificates

# The user has the same id on every base. Ubuntu's image has another user with it.
if old=$(getent passwd 1000 | cut -d: -f1) && [ -n "$old" ]; then
	userdel -r "$old" 2>/dev/null || userdel "$old"
fi
groupadd -g 1000 sandbox
useradd -u 1000 -g 1000 -m -d /home/sandbox -s /bin/bash -c 'agent of the box' sandbox
# Root of an inner container is the user sandbox (dockerd --userns-remap).
printf 'sandbox:1000:1\nsandbox:100000:65535\n' | tee /etc/subuid >/etc/subgid
mkdir -p /workspace /var/lib/sandbox-agent /opt/playwright/browsers
# "playwright install" locks the directory even if it has nothing to install.
chown 1000:1000 /workspace /opt/playwright/browsers
git lfs install --system --skip-repo
# Java packages link their manuals here and fail to install if the directory is missing; dpkg excludes it.
mkdir -p /usr/share/man/man1
# 150 MB that nothing here uses: tools and shims of older containerd, a dump of link-time code, and static libraries of an
# interpreter and of a sanitizer for other processors.
rm -f /usr/bin/containerd-stress /usr/bin/containerd-shim /usr/bin/containerd-shim-runc-v1 /usr/bin/ctr /usr/bin/*-lto-dump* \
	/usr/lib/python3*/config-*/libpython*.a /usr/lib/*-linux-gnu/libpython*.a /usr/lib/*-linux-gnu/libhwasan* /usr/lib/gcc/*/*/libhwasan*
