#!/bin/sh
# Times and memory of a run, as medians beside the floor of the same minutes.
set -eu
cd "$(dirname "$0")/.."
./scripts/engine.sh status >/dev/null 2>&1 || {
	trap './scripts/engine.sh stop' EXIT
	./scripts/engine.sh start
}
go test -tags 'e2e bench' -count=1 -timeout 30m -run '^TestBench$' -v ./e2e | grep -v '^=== \|cli_test.go\|^    '
