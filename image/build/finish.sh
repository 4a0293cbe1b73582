# Writes the list of installed versions, and of parts that the image lacks.
. /tmp/build/lib.sh

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
	--arg tmux "$(first tmux -V)" --arg chromium "$(first chromium --version)" \
	--arg ffmpeg "$(deb ffmpeg)" --arg playwright "$(first jq -r .version /opt/playwright/driver/package/package.json)" \
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
chmod 755 /usr/lib/command-not-found
rm -rf /usr/share/sandbox-agent/missing /tmp/* /tmp/.[!.]* /root/.cache /root/.npm
cat /usr/share/sandbox-agent/image.json
