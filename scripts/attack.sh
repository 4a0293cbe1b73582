#!/bin/sh
# Runs the attack suite as user sandbox in real boxes and standalone sandboxes, in every available isolation mode, and
# prints the table. It fails if an attempt ends unexpectedly.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp)
table=$(mktemp)
started=
trap 'rm -f "$out" "$table"; [ -z "$started" ] || ./scripts/engine.sh stop' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
./scripts/need.sh test
./scripts/engine.sh status >/dev/null 2>&1 || {
	started=yes
	./scripts/engine.sh start
}
code=0
SANDBOX_AGENT_ATTACK_TABLE=$table go test -tags e2e,nightly -count=1 -timeout 60m -run '^(TestAttack|TestPrivileged|TestSandboxAttack|TestHostAttack|TestLeaseAttack|TestLeaseHostile|TestMountRace)$' -v ./e2e >"$out" 2>&1 || code=$?
go run ./internal/test/attack table "$table" || code=1
echo
if [ "$code" -ne 0 ]; then
	grep -E '^ +[a-z_]+\.go:|^--- |^panic' "$out" || true
	echo "The end of the output (boxes that others start meanwhile count as left behind):"
	tail -n 15 "$out"
	exit "$code"
fi
grep -E '^ *--- ' "$out"
