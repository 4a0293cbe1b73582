# Runs in a sandbox, as its user: brings the clone $1 to the commit $2, whose objects come as a pack on standard input. Its name is then $3, the commit that it was made at $4.
set -eu
cd "$1"
# No setting but the clone's own counts, and none of its hooks: the files are those of the commit.
export GIT_DIR=.git GIT_WORK_TREE=. GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
git index-pack --stdin --fix-thin >/dev/null
git -c core.hooksPath=/dev/null -c core.fsmonitor=false reset --quiet --hard "$2"
echo "$3 $4" >.git/sandbox-agent
