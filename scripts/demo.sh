#!/bin/sh
# Runs a whole task on the sample repository, on a machine without prerequisites.
set -eu
cd "$(dirname "$0")/.."

./scripts/need.sh build
had_engine=yes
./scripts/engine.sh status >/dev/null 2>&1 || had_engine=
./scripts/engine.sh start
# Only needed if no registry answers, so its absence is no error.
./scripts/need.sh base || true
"${MAKE:-make}" build
code=0
./bin/sandbox-agent demo "$@" || code=$?
if [ -z "$had_engine" ]; then
	echo "The Docker engine started for this keeps running, for your own tasks; scripts/engine.sh stop ends it."
fi
exit $code
