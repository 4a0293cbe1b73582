#!/bin/sh
# Kills runs at random moments of a seed, repeats each command, and prints what was lost. `make nightly` has one round
# of every kind.
# With ChaosSandbox it kills standalone sandboxes instead. Usage: chaos.sh ROUNDS SEED [ChaosSandbox]
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp)
started=
trap 'rm -f "$out"; [ -z "$started" ] || ./scripts/engine.sh stop' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
./scripts/need.sh test
./scripts/engine.sh status >/dev/null 2>&1 || {
	started=yes
	./scripts/engine.sh start
}
# A round takes some twenty seconds, in which its agent mostly sleeps: four run at a time.
limit=$((20 + $1 / 4))m
code=0
SANDBOX_AGENT_CHAOS_ROUNDS=$1 SANDBOX_AGENT_CHAOS_SEED=$2 \
	go test -tags e2e -count=1 -parallel 4 -timeout "$limit" -run "^Test${3:-Chaos}\$" -v ./e2e >"$out" 2>&1 || code=$?
if [ "$code" -ne 0 ]; then
	cat "$out"
	exit "$code"
fi
grep -E '^(chaos:|\||ok)' "$out"
