command -v docker >/dev/null || {
	echo "$name: docker is missing" >&2
	exit 126
}
# The timeout is inside: who ends the client does not end the container.
set -- "$image" timeout -k 2 "$timeout_seconds" "$@"
for v in $inherit; do
	set -- --env "$v" "$@"
done
if [ -n "${SANDBOX_AGENT_PROJECT_DIR-}" ]; then
	[ -d "$SANDBOX_AGENT_PROJECT_DIR" ] || {
		echo "$name: SANDBOX_AGENT_PROJECT_DIR is no folder" >&2
		exit 126
	}
	set -- --mount "type=bind,source=$(readlink -f -- "$SANDBOX_AGENT_PROJECT_DIR"),target=$project_mount,readonly" "$@"
fi
exec docker run --interactive --rm --network none --user 1000:1000 --cap-drop ALL --security-opt no-new-privileges --memory "${memory_mb}m" --memory-swap "${memory_mb}m" \
	--cpus 1 --pids-limit 512 --workdir /workspace --tmpfs "/workspace:mode=1777,exec" --env HOME=/workspace --env TMPDIR=/workspace "$@"
