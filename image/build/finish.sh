# Links the browser where programs look for it, and writes the list of installed versions.
. /tmp/build/lib.sh

# Java packages link their manuals here and fail to install if the directory is missing; dpkg excludes it.
mkdir -p /usr/share/man/man1

browsers=/opt/playwright/browsers
driver=/opt/playwright/driver/package
chrome=
if [ -x /usr/bin/chromium ]; then
	chrome=/usr/bin/chromium
else
	for f in /opt/playwright/bundled/chromium-*/chrome-linux*/chrome; do
		[ -x "$f" ] && chrome=$f
	done
fi
mkdir -p $browsers
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
# "playwright install" locks the directory even if it has nothing to install.
chown sandbox:sandbox $browsers

# The runner's browser has its own user, so that the user sandbox can neither write its files nor trace it. Its driver finds
# ffmpeg in a directory that only root can write.
groupadd -g 1001 browser
useradd -u 1001 -g 1001 -M -d /nonexistent -s /usr/sbin/nologin -c 'browser of the runner' browser
mkdir -p /opt/playwright/runner/.ffmpeg
ln -s /usr/bin/ffmpeg /opt/playwright/runner/.ffmpeg/ffmpeg-linux
touch /opt/playwright/runner/.ffmpeg/INSTALLATION_COMPLETE
ln -s .ffmpeg "/opt/playwright/runner/ffmpeg-$(jq -r '.browsers[] | select(.name == "ffmpeg") | .revision' $driver/browsers.json)"

git lfs install --system --skip-repo
chown -R sandbox:sandbox /home/sandbox /workspace

first() { "$@" 2>/dev/null | head -n 1 | tr -d '\r'; }
deb() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || true; }
mkdir -p /usr/share/sandbox-agent/missing
missing_json=$(cd /usr/share/sandbox-agent/missing && for f in *; do
	[ -f "$f" ] && jq -n --arg k "$f" --rawfile v "$f" '{($k): ($v | rtrimstr("\n"))}'
done | jq -s 'add // {}')
jq -n --arg id "$ID" --arg v "$VERSION_ID" --arg arch "$(dpkg --print-architecture)" --argjson missing "$missing_json" \
	--arg docker "$(first dockerd --version)" --arg containerd "$(first containerd --version)" \
	--arg runc "$(first runc --version)" --arg crun "$(first crun --version)" \
	--arg buildx "$(first docker buildx version)" --arg compose "$(first docker compose version --short)" \
	--arg fuse "$(deb fuse-overlayfs)" --arg git "$(first git --version)" --arg node "$(first node --version)" \
	--arg npm "$(first npm --version)" --arg python "$(first python3 --version)" --arg gcc "$(first gcc -dumpfullversion)" \
	--arg tmux "$(first tmux -V)" --arg chromium "$([ -z "$chrome" ] || first "$chrome" --version --no-sandbox)" \
	--arg ffmpeg "$(deb ffmpeg)" --arg playwright "$(jq -r .version $driver/package.json)" \
	--arg ab "$(first agent-browser --version)" --arg claude "$(first env HOME=/tmp claude --version)" \
	--arg codex "$(first env HOME=/tmp codex --version)" --arg opencode "$(first env HOME=/tmp opencode --version)" \
	--arg supabase "$(first env HOME=/tmp supabase --version)" '
	{base: ($id + " " + $v), arch: $arch,
	 contents: ({dockerd: $docker, containerd: $containerd, runc: $runc, crun: $crun, buildx: $buildx, compose: $compose,
	  "fuse-overlayfs": $fuse, git: $git, node: $node, npm: $npm, python: $python, gcc: $gcc, tmux: $tmux, chromium: $chromium,
	  ffmpeg: $ffmpeg, "playwright-core": $playwright, "agent-browser": $ab, "claude-code": $claude, codex: $codex, opencode: $opencode, supabase: $supabase}
	  | with_entries(select(.value != ""))),
	 missing: $missing}' >/usr/share/sandbox-agent/image.json
# A proof copies /tmp for base and for head, so it must be empty.
rm -rf /usr/share/sandbox-agent/missing /tmp/* /tmp/.[!.]* /root/.cache /root/.npm
cat /usr/share/sandbox-agent/image.json
