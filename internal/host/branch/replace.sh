# Runs in a sandbox, as its user: makes the files of the clone $1, which are saved, those of the commit $2, whose objects come as a pack on standard input.
set -eu
cd "$1"
export GIT_DIR=.git GIT_WORK_TREE=. GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
git index-pack --stdin --fix-thin >/dev/null
git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor=false "$@"; }
git clean -qfd -e node_modules/ -e __pycache__/ -e .venv/ -e venv/
git read-tree --reset -u "$2"
