# Makes the clone $1 of the bundle on standard input, at the branch $2, for the user $3 with the address $4. Where $2 is a tag or commit, it is at a new
# branch sandbox/$5.
set -eu
command -v git >/dev/null || {
	echo "there is no git in it: take an image that has it" >&2
	exit 1
}
mkdir -p "$1"
cd "$1"
# The copy is here, on the disk: the /tmp of a jail is memory. Blobs are streamed, so that a small memory holds the clone of a large repository.
rm -rf .sandbox-agent-clone .sandbox-agent-bundle-*
b=$(mktemp "$PWD/.sandbox-agent-bundle-XXXXXX")
trap 'rm -f "$b"' EXIT
cat >"$b"
git() { command git -c core.bigFileThreshold=8m "$@"; }
# Its .git comes last: where this is killed, no save takes a part of the files for all of them.
at=
case $(git bundle list-heads "$b" "refs/heads/$2") in
'') git clone -q -n "$b" .sandbox-agent-clone && at=$2 ;;
*) git clone -q -n -b "$2" "$b" .sandbox-agent-clone ;;
esac
export GIT_DIR=.sandbox-agent-clone/.git GIT_WORK_TREE=.
if [ -n "$at" ]; then
	at=$(git rev-parse --quiet --verify "refs/tags/$at^{commit}" || echo "$at")
	git symbolic-ref HEAD "refs/heads/sandbox/$5"
fi
git reset -q --hard $at
git remote remove origin
git config user.name "$3"
git config user.email "$4"
mv "$GIT_DIR" .
rmdir .sandbox-agent-clone
