# Installs Node and npm.
. /tmp/build/lib.sh

tarball node-linux-$arch /tmp/node
mv /tmp/node/bin/node /usr/local/bin/node
strip /usr/local/bin/node # a seventh of it
tarball npm /usr/local/lib/node_modules/npm
rm -rf /tmp/node /usr/local/lib/node_modules/npm/docs /usr/local/lib/node_modules/npm/man
ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
chmod 755 /usr/local/bin/node /usr/local/lib/node_modules/npm/bin/*.js

# npm in the box uses the host's registry if it is not npm's default. "npm install -g"
# installs into the home directory, because the agent is not root.
registry=$(sed -n 's/^registry=//p' /tmp/host/npmrc)
own=$(npm config get registry --userconfig /dev/null)
mkdir -p /usr/local/etc
{
	# shellcheck disable=SC2016 # npm expands it
	echo 'prefix=${HOME}/.local'
	printf 'audit=false\nfund=false\nupdate-notifier=false\n'
	[ -z "$registry" ] || [ "${registry%/}" = "${own%/}" ] || echo "registry=$registry"
} >/usr/local/etc/npmrc
rm -rf /root/.npm
