#!/bin/sh
# Runs `make test`: installs what is missing, and starts an engine if none answers, which it stops in the end.
# Usage: test.sh [nightly]; nightly adds the tests with that build tag (CONTRIBUTING.md).
set -eu
cd "$(dirname "$0")/.."

tags=e2e
unit= # build tag of the unit tests
with='^//go:build e2e$' # the first line of files with tests that need an engine
e2e_deadline=60m # it only ends a hang: half of it on two slow cores
if [ "${1:-}" = nightly ]; then
	tags=e2e,nightly
	unit="-tags nightly"
	with='^//go:build e2e\( && nightly\)\{0,1\}$'
	e2e_deadline=180m
fi
# Boxes mostly wait: for grace periods, pushes and each other. Tests that need a quiet machine are not parallel.
e2e_parallel=5

./scripts/need.sh build test
started= # an engine that answers already is not ours
image=   # the process that builds the image
log=$(mktemp)
memory=
finish() {
	[ -z "$image" ] || kill "$image" 2>/dev/null || true
	[ -z "$started" ] || ./scripts/engine.sh stop
	rm -rf "$log" ${memory:+"$memory"}
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
./scripts/engine.sh status >/dev/null 2>&1 || {
	started=yes
	./scripts/engine.sh start
}
# Only needed if no registry answers, so its absence is no error.
./scripts/need.sh base || true

"${MAKE:-make}" build
# The image is built in parallel: it waits for packages while the tests compute. With all parts it fits every test.
./bin/sandbox-agent image build --with all >"$log" 2>&1 &
image=$!

# In memory, if there is enough, git does not wait for the disk. The name is short for paths of sockets.
set --
if [ "$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)" -gt 8000000 ] && [ "$(df -kP /dev/shm 2>/dev/null | awk 'END {print $4}')" -gt 4000000 ]; then
	memory=$(mktemp -d /dev/shm/sa.XXXXXX)
	printf '#!/bin/sh\n' >"$memory/run"
	chmod 755 "$memory" "$memory/run"
	"$memory/run" 2>/dev/null || { # mounted noexec
		rm -rf "$memory"
		memory=
	}
	# The tests alone: what is compiled for them is too large for it.
	[ -z "$memory" ] || set -- -exec "env TMPDIR=$memory"
fi

# By default a program with the race detector sleeps for a second before it ends; there are hundreds of them.
GORACE="atexit_sleep_ms=20${GORACE:+ $GORACE}"
export GORACE

# With large input in one goroutine the race detector finds nothing and takes twenty times as long: such tests use little
# input with it, and all of it without.
echo "== unit tests, with the race detector"
# The slowest package begins first, so that it does not run alone at the end.
first=
for d in internal/guest/rootgit runner internal/front/cli; do
	[ ! -d "$d" ] || first="$first ./$d/..."
done
# A stage prints failures and the slowest tests.
# shellcheck disable=SC2086 # a list of packages
./scripts/tested.sh 10 $unit -race -short -vet=off "$@" -timeout 25m $first ./...
# The flags of the programs' build: the rest reuses its compiled packages.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath"
echo "== unit tests of large input"
large=$(grep -rl --include='*_test.go' 'testing.Short()' . | xargs -r -n 1 dirname | sort -u)
names=$(grep -rl --include='*_test.go' 'testing.Short()' . | xargs -r awk '/^func (Test|Fuzz)/ {split($2, name, "("); test = name[1]} /testing\.Short\(\)/ {print test}' | sort -u | paste -s -d '|')
# shellcheck disable=SC2086 # a list of packages
go test $unit -vet=off "$@" -timeout 10m -run "^($names)\$" $large
echo "== image"
code=0
wait "$image" || code=$?
image=
cat "$log"
[ "$code" = 0 ] || exit "$code"
# Only tests that need an engine. One package at a time: some build and remove images that others would take.
files=$(grep -rl --include='*_test.go' "$with" .)
e2e=$(echo "$files" | xargs -r -n 1 dirname | sort -u)
names=$(echo "$files" | xargs -r sed -n 's/^func \(Test[A-Za-z0-9_]*\)(t .*/\1/p' | sort -u | paste -s -d '|')
echo "== tests on the engine"
# shellcheck disable=SC2086 # a list of packages
./scripts/tested.sh all -tags "$tags" -vet=off -count=1 -p 1 -parallel $e2e_parallel -timeout $e2e_deadline -run "^($names)\$" $e2e
[ -z "$unit" ] || "${MAKE:-make}" vet-darwin
