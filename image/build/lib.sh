# Functions and settings that the image's build steps share.
set -eu
umask 022
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

# install NAME...: installs packages of the distribution without recommended ones, and removes the package lists.
install() {
	apt-get update -q
	apt-get install -q -y --no-install-recommends "$@"
	rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt/* /var/log/dpkg.log /var/log/alternatives.log
}

# missing NAME REASON: records that an optional part is not in this image. The CLI
# turns the printed line into a warning; finish.sh adds the file to image.json.
missing() {
	mkdir -p /usr/share/sandbox-agent/missing
	printf '%s\n' "$2" >"/usr/share/sandbox-agent/missing/$1"
	printf 'not in this image: %s: %s\n' "$1" "$2"
}

case $(dpkg --print-architecture) in
amd64) arch=x64 ;;
arm64) arch=arm64 ;;
*)
	echo "no packages for the architecture $(dpkg --print-architecture)" >&2
	exit 1
	;;
esac

# tarball PACKAGE DIR: downloads a package from the npm registry, verifies it against the lock file's SHA-512 and
# unpacks it. It fails with 1 if the registry does not have it; a wrong content ends the build.
tarball() {
	read -r name version want <"/tmp/packages/$1"
	registry=$(sed -n 's/^registry=//p' /tmp/host/npmrc)
	registry=${registry:-https://registry.npmjs.org}
	curl -fsSL --retry 3 --connect-timeout 20 --max-time 600 -o /tmp/p.tgz "${registry%/}/$name/-/${name##*/}-$version.tgz" || return 1
	got=sha512-$(openssl dgst -sha512 -binary /tmp/p.tgz | base64 -w0)
	if [ "$got" != "$want" ]; then
		echo "$name $version: integrity is $got, the lock says $want" >&2
		exit 1
	fi
	mkdir -p "$2"
	tar -xzf /tmp/p.tgz -C "$2" --strip-components=1 --no-same-owner
	rm /tmp/p.tgz
}

. /etc/os-release
