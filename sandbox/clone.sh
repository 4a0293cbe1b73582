# Makes the clone $1 of the bundle on standard input, at the branch $2, for the user $3 with the address $4.
set -eu
command -v git >/dev/null || {
	echo "there is no git in it: take an image that has it" >&2
	exit 1
}
cd "$1"
b=$(mktemp)
trap 'rm -f "$b"' EXIT
cat >"$b"
git clone -q -b "$2" "$b" .
git remote remove origin
git config user.name "$3"
git config user.email "$4"
