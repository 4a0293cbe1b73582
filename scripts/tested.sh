#!/bin/sh
# go test with the rest of the arguments; printed is what scripts/slow makes of it, with so many of the slowest tests, or all. It fails
# when either does: sh tells only of the end of a pipe, and what a killed `go test` has printed may have no failure in it.
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
} | go run ./scripts/slow ${most:+"$most"}
code=$(cat "$status")
[ "$code" = 0 ] || {
	echo "go test ended with status ${code:-unknown}" >&2
	exit 1
}
