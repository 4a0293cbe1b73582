# Installs packages from the npm registry, verified against the lock file's SHA-512: Node,
# npm, Claude Code, Codex, opencode, the Supabase CLI, agent-browser and Playwright's driver.
. /tmp/build/lib.sh

registry=$(sed -n 's/^registry=//p' /tmp/host/npmrc)
export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
case $(dpkg --print-architecture) in
amd64) arch=x64 ;;
arm64) arch=arm64 ;;
*)
	echo "no packages for the architecture $(dpkg --print-architecture)" >&2
	exit 1
	;;
esac
lock=/tmp/packages/package-lock.json

# tarball NAME DIR: downloads, verifies and unpacks one package of the lock file without npm.
tarball() {
	version=$(jq -r --arg p "node_modules/$1" '.packages[$p].version' $lock)
	want=$(jq -r --arg p "node_modules/$1" '.packages[$p].integrity' $lock)
	curl -fsSL --retry 3 --connect-timeout 20 --max-time 600 -o /tmp/p.tgz "${registry%/}/$1/-/${1##*/}-$version.tgz"
	got=sha512-$(openssl dgst -sha512 -binary /tmp/p.tgz | base64 -w0)
	if [ "$got" != "$want" ]; then
		echo "$1 $version: integrity is $got, the lock says $want" >&2
		exit 1
	fi
	mkdir -p "$2"
	tar -xzf /tmp/p.tgz -C "$2" --strip-components=1
	rm /tmp/p.tgz
}

if [ -n "$registry" ]; then
	tarball node-linux-$arch /tmp/boot/node
	tarball npm /tmp/boot/npm
	npm() { /tmp/boot/node/bin/node /tmp/boot/npm/bin/npm-cli.js "$@"; }
else
	# No registry is given: the distribution's npm knows its default.
	install npm
fi
cd /tmp/packages
npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --force --cache /tmp/npm-cache ${registry:+--registry "$registry"}
m=/tmp/packages/node_modules

mkdir -p /usr/local/lib/node_modules /usr/local/etc /opt/playwright/driver
mv $m/node-linux-$arch/bin/node /usr/local/bin/node
mv $m/npm /usr/local/lib/node_modules/npm
rm -rf /usr/local/lib/node_modules/npm/docs /usr/local/lib/node_modules/npm/man
ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
mv $m/@anthropic-ai/claude-code-linux-$arch/claude /usr/local/bin/claude
# Codex expects its helper programs in its own directory; its voice input is not needed.
# Codex, opencode and the Supabase CLI are optional dependencies: npm ignores missing ones.
if [ -d $m/@openai/codex-linux-$arch ]; then
	mv $m/@openai/codex-linux-$arch/vendor/*-linux-* /usr/local/lib/codex # its only directory
	rm -rf /usr/local/lib/codex/codex-resources/voice
	ln -s ../lib/codex/bin/codex /usr/local/bin/codex
else
	missing codex "the registry has no @openai/codex for linux-$arch"
fi
if [ -d $m/opencode-linux-$arch ]; then
	mv $m/opencode-linux-$arch/bin/opencode /usr/local/bin/opencode
else
	missing opencode "the registry has no opencode-linux-$arch"
fi
mv $m/playwright-core /opt/playwright/driver/package
# The package holds seven platforms. The static binary runs with both C libraries.
mv $m/agent-browser/bin/agent-browser-linux-musl-$arch /usr/local/bin/agent-browser
if [ -d $m/@supabase/cli-linux-$arch ]; then
	mv $m/@supabase/cli-linux-$arch/bin/* /usr/local/bin/
else
	missing supabase "the registry has no @supabase/cli-linux-$arch"
fi
chown -R root:root /usr/local /opt/playwright
chmod 755 /usr/local/bin/*

if [ -z "$registry" ]; then
	apt-get purge -q -y --autoremove npm nodejs
fi

# npm in the box uses the host's registry if it is not npm's default. "npm install -g"
# installs into the home directory, because the agent is not root.
own=$(/usr/local/bin/npm config get registry --userconfig /dev/null)
{
	# shellcheck disable=SC2016 # npm expands it
	echo 'prefix=${HOME}/.local'
	printf 'audit=false\nfund=false\nupdate-notifier=false\n'
	[ -z "$registry" ] || [ "${registry%/}" = "${own%/}" ] || echo "registry=$registry"
} >/usr/local/etc/npmrc

if [ "$ID" = ubuntu ]; then
	# Playwright's build of Chromium, in the driver's version.
	mkdir -p /opt/playwright/bundled
	PLAYWRIGHT_BROWSERS_PATH=/opt/playwright/bundled timeout 600 /usr/local/bin/node \
		/opt/playwright/driver/package/cli.js install --no-shell chromium ||
		missing chromium "Playwright's download host did not answer"
fi
rm -rf /tmp/packages/node_modules /tmp/npm-cache /tmp/boot /root/.npm /root/.cache
