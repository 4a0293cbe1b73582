# Makes the clone $1 of the bundle on standard input, at the branch $2, for the user $3 with the address $4.
set -eu
command -v git >/dev/null || {
	echo "there is no git in it: take an image that has it" >&2
	exit 1
}
cd "$1"
# The copy is here, on the disk: the /tmp of a jail is memory. Blobs are streamed, so that a small memory holds the clone of a large repository.
rm -rf .sandbox-agent-clone .sandbox-agent-bundle-*
b=$(mktemp "$PWD/.sandbox-agent-bundle-XXXXXX")
trap 'rm -f "$b"' EXIT
cat >"$b"
git() { command git -c core.bigFileThreshold=8m "$@"; }
# Its .git comes last: where this is killed, no save takes a part of the files for all of them.
git clone -q -n -b "$2" "$b" .sandbox-agent-clone
export GIT_DIR=.sandbox-agent-clone/.git GIT_WORK_TREE=.
git reset -q --hard
git remote remove origin
git config user.name "$3"
git config user.email "$4"
mv "$GIT_DIR" .
rmdir .sandbox-agent-clone
