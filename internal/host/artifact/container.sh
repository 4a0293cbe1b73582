command -v docker >/dev/null || {
	echo "$sa_name: docker is missing" >&2
	exit 126
}
# The timeout is inside: who ends the client does not end the container.
set -- "$sa_image" timeout -k 2 "$sa_timeout_seconds" "$@"
for sa_v in $sa_inherit; do
	set -- --env "$sa_v" "$@"
done
if [ -n "${SANDBOX_AGENT_PROJECT_DIR-}" ]; then
	[ -d "$SANDBOX_AGENT_PROJECT_DIR" ] || {
		echo "$sa_name: SANDBOX_AGENT_PROJECT_DIR is no folder" >&2
		exit 126
	}
	# docker reads a line of CSV, in which a comma ends a field and a quote is doubled.
	field() { printf '"%s=%s"' "$1" "$(printf '%s\n' "$2" | sed 's/"/""/g')"; }
	set -- --mount "type=bind,readonly,$(field source "$(readlink -f -- "$SANDBOX_AGENT_PROJECT_DIR")"),$(field target "$sa_project_mount")" "$@"
fi
exec docker run --interactive --rm --network none --user 1000:1000 --cap-drop ALL --security-opt no-new-privileges --memory "${sa_memory_mb}m" --memory-swap "${sa_memory_mb}m" \
	--cpus 1 --pids-limit 512 --workdir /workspace --tmpfs "/workspace:mode=1777,exec" --env HOME=/workspace --env TMPDIR=/workspace "$@"
