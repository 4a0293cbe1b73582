# Installs a headless Chromium, ffmpeg, agent-browser and Playwright's driver, and links them where programs look for them.
. /tmp/build/lib.sh

browsers=/opt/playwright/browsers
driver=/opt/playwright/driver/package
tarball playwright-core $driver
tarball agent-browser /tmp/agent-browser
# The package holds seven platforms. The static binary runs with both C libraries.
mv /tmp/agent-browser/bin/agent-browser-linux-musl-$arch /usr/local/bin/agent-browser
chmod 755 /usr/local/bin/agent-browser
rm -rf /tmp/agent-browser

fonts="fonts-liberation fonts-dejavu-core fonts-noto-color-emoji"
chrome=
case $ID in
debian)
	# shellcheck disable=SC2086 # a list of packages
	install chromium-headless-shell ffmpeg $fonts
	# A layer for developers of graphics drivers.
	rm -f /usr/lib/chromium/libVkLayer_khronos_validation.so*
	chrome=/usr/bin/chromium-headless-shell
	;;
ubuntu)
	# Ubuntu's chromium package only installs a snap, so this is Playwright's build and the libraries that it needs.
	# shellcheck disable=SC2086 # a list of packages
	install ffmpeg $fonts libasound2t64 libatk-bridge2.0-0t64 libatk1.0-0t64 libatspi2.0-0t64 libcairo2 libcups2t64 \
		libdbus-1-3 libdrm2 libgbm1 libglib2.0-0t64 libnspr4 libnss3 libpango-1.0-0 libx11-6 libxcb1 \
		libxcomposite1 libxdamage1 libxext6 libxfixes3 libxkbcommon0 libxrandr2
	mkdir -p /opt/playwright/bundled
	PLAYWRIGHT_BROWSERS_PATH=/opt/playwright/bundled timeout 600 node $driver/cli.js install --only-shell chromium ||
		missing chromium "Playwright's download host did not answer"
	for f in /opt/playwright/bundled/chromium_headless_shell-*/chrome-*/*headless?shell; do
		[ ! -x "$f" ] || chrome=$f
	done
	;;
esac

# Chromium draws without Mesa, whose compiler is larger than all of its other libraries. It is removed together with the
# dependencies on it, so that apt can still install what needs it, and it.
mesa=$(dpkg-query -W -f '${Package} ' 'libllvm*' 'libz3-4' mesa-libgallium libgl1-mesa-dri libglx-mesa0 2>/dev/null || true)
if [ -n "$mesa" ]; then
	names=$(printf %s "${mesa% }" | tr ' ' '|')
	sed -i -E "/^(Pre-)?Depends: /{s/(, |: )($names)(:any)?( \([^)]*\))?/\1/g; s/(, )+/, /g; s/: , /: /; s/, $//}" /var/lib/dpkg/status
	# shellcheck disable=SC2086 # a list of packages
	dpkg --purge $mesa
	apt-get purge -q -y --autoremove
fi

if [ -n "$chrome" ]; then
	# Chromium's own sandbox needs user namespaces or a setuid helper, and the agent
	# has neither. The box isolates instead. Shared memory in a container is small.
	printf '#!/bin/sh\nexec %s --no-sandbox --disable-dev-shm-usage "$@"\n' "$chrome" >/usr/local/bin/chromium
	chmod 755 /usr/local/bin/chromium
	ln -s chromium /usr/local/bin/google-chrome
	# Every Playwright release looks for its own browser revision. One directory with
	# every layout since 1.40, and a link per revision, lead all releases to this browser.
	mkdir -p $browsers/.chromium $browsers/.ffmpeg
	for d in chrome-linux chrome-linux64 chrome-headless-shell-linux64 chrome-headless-shell-linux-arm64; do
		mkdir $browsers/.chromium/$d
		for n in chrome headless_shell chrome-headless-shell; do
			ln -s /usr/local/bin/chromium $browsers/.chromium/$d/$n
		done
	done
	ln -s /usr/bin/ffmpeg $browsers/.ffmpeg/ffmpeg-linux
	# "playwright install" takes these files as the mark of a complete download.
	touch $browsers/.chromium/INSTALLATION_COMPLETE $browsers/.ffmpeg/INSTALLATION_COMPLETE
	r=1080
	while [ $r -le 1400 ]; do
		ln -s .chromium $browsers/chromium-$r
		ln -s .chromium $browsers/chromium_headless_shell-$r
		r=$((r + 1))
	done
	r=1009
	while [ $r -le 1030 ]; do
		ln -s .ffmpeg $browsers/ffmpeg-$r
		r=$((r + 1))
	done
else
	[ -e /usr/share/sandbox-agent/missing/chromium ] || missing chromium "the distribution has none"
fi

# The runner's browser has its own user, so that the user sandbox can neither write its files nor trace it. Its driver finds
# ffmpeg in a directory that only root can write.
groupadd -g 1001 browser
useradd -u 1001 -g 1001 -M -d /nonexistent -s /usr/sbin/nologin -c 'browser of the runner' browser
mkdir -p /opt/playwright/runner/.ffmpeg
ln -s /usr/bin/ffmpeg /opt/playwright/runner/.ffmpeg/ffmpeg-linux
touch /opt/playwright/runner/.ffmpeg/INSTALLATION_COMPLETE
ln -s .ffmpeg "/opt/playwright/runner/ffmpeg-$(jq -r '.browsers[] | select(.name == "ffmpeg") | .revision' $driver/browsers.json)"
rm -rf /root/.npm /root/.cache
