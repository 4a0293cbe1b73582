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

. /etc/os-release
