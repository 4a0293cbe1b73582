#!/bin/sh
# Prints times and memory of a run as medians, with the same minutes' minimum. Run it on a quiet machine.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp)
started=
trap 'rm -f "$out"; [ -z "$started" ] || ./scripts/engine.sh stop' EXIT
./scripts/engine.sh status >/dev/null 2>&1 || {
	started=yes
	./scripts/engine.sh start
}
if go test -tags 'e2e bench' -count=1 -timeout 30m -run '^TestBench' -v ./e2e >"$out" 2>&1; then
	sed -n '/^what /,/^--- /p' "$out" | grep -v '^--- \|^    \|^exit code\|^sandbox-agent '
else
	cat "$out"
	exit 1
fi
