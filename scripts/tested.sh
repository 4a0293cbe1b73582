#!/bin/sh
# Runs go test with the other arguments and prints its output by scripts/slow. It fails if either does: a killed `go test`
# may have printed no failure.
# Usage: tested.sh HOW_MANY|all ARGUMENT...
set -eu
most=$1
[ "$most" != all ] || most=
shift
status=$(mktemp)
trap 'rm -f "$status"' EXIT
{
	code=0
	go test -json "$@" || code=$?
	echo "$code" >"$status"
} | CGO_ENABLED=0 go run -trimpath ./scripts/slow ${most:+"$most"}
code=$(cat "$status")
[ "$code" = 0 ] || {
	echo "go test ended with status ${code:-unknown}" >&2
	exit 1
}
