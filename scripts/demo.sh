#!/bin/sh
# A whole task on the sample repository, from a machine with nothing on it.
set -eu
cd "$(dirname "$0")/.."

./scripts/need.sh build
had_engine=yes
./scripts/engine.sh status >/dev/null 2>&1 || had_engine=
./scripts/engine.sh start
# Only needed where no registry answers, so that its absence is no error here.
./scripts/need.sh base || true
"${MAKE:-make}" build
code=0
./bin/sandbox-agent demo "$@" || code=$?
if [ -z "$had_engine" ]; then
	echo "The Docker engine started for this keeps running, for your own tasks; scripts/engine.sh stop ends it."
fi
exit $code
